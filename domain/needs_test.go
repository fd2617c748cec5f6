package domain

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
	"unicode"
)

// needing is a command with one need that contains a hostile text.
type needing struct {
	Origin
	need func(*Needs)
}

func (c needing) Need(n *Needs)                           { c.need(n) }
func (needing) Decide(*State, time.Time) ([]Draft, error) { return nil, nil }
func hostileTexts() []string {
	return []string{"\x00", "a\x00b", "\xff", "\xc0\x80", "\xed\xa0\x80"}
}
func setText(v reflect.Value, path []int, text string) {
	if f := v.FieldByIndex(path); f.Kind() == reflect.String {
		f.SetString(text)
	} else {
		f.Set(reflect.ValueOf(ParseActor(text)))
	}
}

func textFields(t reflect.Type, at []int) (fields [][]int) {
	for i := range t.NumField() {
		path := append(slices.Clone(at), i)
		switch f := t.Field(i); {
		case f.Type.Kind() == reflect.String, f.Type == reflect.TypeFor[Actor]():
			fields = append(fields, path)
		case f.Type.Kind() == reflect.Struct:
			fields = append(fields, textFields(f.Type, path)...)
		}
	}
	return fields
}

// TestNeedsLetNoHostileTextThrough: if a need of any kind contains a text that PostgreSQL refuses, Add leaves out that
// need and no other. The kinds are read from Needs, so a new kind is covered.
func TestNeedsLetNoHostileTextThrough(t *testing.T) {
	lists := [][]int{}
	var find func(reflect.Type, []int)
	find = func(needs reflect.Type, at []int) {
		for i := range needs.NumField() {
			path := append(slices.Clone(at), i)
			switch f := needs.Field(i).Type; {
			case f.Kind() == reflect.Struct:
				find(f, path)
			case f.Kind() == reflect.Slice && (f.Elem().Kind() == reflect.Struct && len(textFields(f.Elem(), nil)) > 0 ||
				f.Elem().Kind() == reflect.String):
				lists = append(lists, path)
			}
		}
	}
	find(reflect.TypeFor[Needs](), nil)
	if len(lists) < 3 {
		t.Fatalf("only the needs %v hold text", lists)
	}
	for _, list := range lists {
		element := reflect.TypeFor[Needs]().FieldByIndex(list).Type.Elem()
		if element.Kind() == reflect.String {
			t.Fatalf("a need is a bare text: %s", reflect.TypeFor[Needs]().FieldByIndex(list).Name)
		}
		for _, field := range textFields(element, nil) {
			for _, text := range hostileTexts() {
				name := fmt.Sprintf("%s.%s", element, element.FieldByIndex(field).Name)
				var needs Needs
				add := func(values ...string) {
					needs.Add(needing{need: func(n *Needs) {
						for _, value := range values {
							need := reflect.New(element).Elem()
							setText(need, field, value)
							into := reflect.ValueOf(n).Elem().FieldByIndex(list)
							into.Set(reflect.Append(into, need))
						}
					}})
				}
				add("before")
				add("first", text, "last")
				add("after")
				var got []string
				for need := range reflect.ValueOf(needs).FieldByIndex(list).Seq2() {
					value := reflect.ValueOf(needs).FieldByIndex(list).Index(int(need.Int())).FieldByIndex(field)
					got = append(got, fmt.Sprint(value.Interface()))
				}
				if want := []string{"before", "first", "last", "after"}; !slices.Equal(got, want) {
					t.Errorf("%s %q: %q are needed", name, text, got)
				}
			}
		}
	}
}

// TestNamesHoldNoHostileText: no command accepts a name that PostgreSQL refuses or that changes how the rest of a line
// reads.
func TestNamesHoldNoHostileText(t *testing.T) {
	w := newWorld(t, testSigner(t), 1)
	member := w.state.keys[w.key].Member
	person := Origin{Organization: w.origin.Organization, Actor: MemberActor(member), RequestID: "r", Console: true}
	key, hooks := SecretKey{1}, w.origin
	made, _ := NewCreateWebhook(
		CreateWebhook{Origin: hooks, URL: "https://receiver.example", Types: MaskOf(WebhookTypes())}, key, w.now,
	)
	if code := w.execute(made); code != "" {
		t.Fatal(code)
	}
	names := append(hostileTexts(), "a\u2028b", "a\u2029b", "a\x7fb")
	for r := rune(1); r <= 0x9f; r++ {
		if unicode.IsControl(r) {
			names = append(names, "a"+string(r)+"b")
		}
	}
	for _, block := range unicode.Bidi_Control.R16 {
		for r := rune(block.Lo); r <= rune(block.Hi); r += rune(block.Stride) {
			names = append(names, "a"+string(r)+"b")
		}
	}
	for _, name := range names {
		destination, _ := NewCreateWebhook(CreateWebhook{
			Origin: hooks, URL: "https://receiver.example", Description: name, Types: MaskOf(WebhookTypes()),
		}, key, w.now)
		create, _ := NewCreateKey(CreateKey{
			Origin: person, Member: member, Name: name, Scopes: []Scope{IntegrityRead}, Lifetime: time.Hour,
		}, w.now)
		for _, c := range []Command{
			create,
			&ChangeKey{Origin: person, Key: w.key, Name: &name},
			&AddPasskey{
				Origin: person, Member: member, Name: name, Credential: Credential{CredentialID: []byte{1}, PublicKey: []byte{1}},
			},
			&CreateOrganization{
				Origin: Origin{Organization: NewOrganizationID(w.now, 0), Actor: OperatorActor}, Name: name, Plan: InternalPlan,
			},
			&CreateCompany{Origin: person, Reference: name},
			destination,
			&UpdateWebhook{Origin: hooks, Webhook: made.Outcome.ID, Description: &name},
		} {
			if code := w.execute(c); code != InvalidData {
				t.Errorf("%T with the name %q: %q", c, name, code)
			}
		}
	}
	draft := Draft{Subject: "s", Texts: []Text{NewText(w.now, "a\x00b")}}
	if err := draft.checkTexts(); err == nil {
		t.Error("a draft holds a text with NUL")
	}
}
