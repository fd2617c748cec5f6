package domain

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"integrityledger/domain/compact"
)

// TestSaved: every object of the saved tables is read back unchanged, in every field, and its bytes depend only on the
// objects. Every other table of a state is listed with the reason why no later event depends on it.
func TestSaved(t *testing.T) {
	unsaved := map[string]string{
		"references": "of companies", "public": "of versions", "authorized": "no event depends on destinations",
		"webhooks": "as above", "destinations": "as above", "usage": "the audit counts it itself",
		"covered": "of decisions", "pending": "versions contain it", "passkeys": "no event depends on them",
		"publisherDomains": "no event depends on them", "publisherNames": "no event depends on them",
		"meters": "not in the log", "administered": "not in the log", "administering": "not in the log",
		"accounts": "limits are not judged again", "registrations": "as above", "contents": "of decisions",
		"claims": "not in the log", "titles": "an audit keeps no texts", "names": "as above", "keyNames": "as above",
		"activeKeys": "limits are not judged again", "memberships": "as above",
	}
	var full Loaded
	n := new(int)
	for range 3 {
		full.AddOrganization(made[Organization](n))
		full.AddMember(made[Member](n))
		key := made[APIKey](n)
		full.AddKey(key)
		company := made[Company](n)
		full.AddCompany(company)
		full.AddGrant(key.ID, company.ID, true)
		full.AddBackfill(company.Organization, made[Backfill](n))
		full.AddLink(made[OAuthLink](n))
		document := full.AddDocument(made[Document](n))
		artifact := full.AddArtifact(made[Artifact](n))
		full.AddAlias(made[Alias](n))
		for range 2 {
			v := made[Version](n)
			v.Document = document
			full.AddVersion(v)
			of := made[ArtifactVersion](n)
			of.Artifact = artifact
			full.AddArtifactVersion(of)
			c := made[Certificate](n)
			c.Artifact = artifact
			full.AddCertificate(c)
		}
	}
	form := full.Papers().Append(full.Parties().Append(nil))
	var read Loaded
	r := compact.NewReader(form)
	read.Parties().Read(r)
	read.Papers().Read(r)
	if err := r.End(); err != nil {
		t.Fatal(err)
	}
	if again := read.Papers().Append(read.Parties().Append(nil)); !bytes.Equal(again, form) {
		t.Error("the bytes of the state that was read differ")
	}
	tables := reflect.ValueOf(full)
	for i := range tables.NumField() {
		name := tables.Type().Field(i).Name
		switch saved := tables.Field(i).Len() > 0; {
		case saved && unsaved[name] != "" && !slices.Contains([]string{"references", "public"}, name):
			t.Errorf("%s: saved, but listed as not saved", name)
		case !saved && unsaved[name] == "":
			t.Errorf("%s: must be saved, or be listed with the reason why not", name)
		}
	}
	if !reflect.DeepEqual(read, full) {
		t.Error("the objects that were read differ")
	}
}

// made returns a value with every field set, each to something else.
func made[T any](n *int) (v T) {
	setEvery(reflect.ValueOf(&v).Elem(), n)
	return v
}

func setEvery(v reflect.Value, n *int) {
	*n++
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.UnixMicro(int64(*n) * 1_000_003).UTC()))
		return
	case v.Type() == reflect.TypeFor[Actor]():
		v.Set(reflect.ValueOf(KeyActor(KeyID{byte(*n), byte(*n >> 8)})))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(byte(*n)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setEvery(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			setEvery(v.Index(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			setEvery(v.Index(i), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("compact") != "-" {
				setEvery(v.Field(i), n)
			}
		}
	default:
		panic(v.Type())
	}
}
