package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/schemas/vectortest"
)

// TestVerifyVectors runs the command on every published vector, as files.
func TestVerifyVectors(t *testing.T) {
	text, err := vectortest.Read()
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		TrustedKeys map[string]string
		Vectors     []struct {
			Name, TrustedKeys                      string
			Receipt, ReceiptBase64, DocumentBase64 *string
			Now                                    time.Time
			RequireReferences, RequireCurrent      bool
			RequireInclusion, RequireTimestamp     bool
			RequireWitnesses                       int
			AcceptStampedBeforeRevocation          bool
			Expect                                 struct {
				ExitCode int
				Findings map[string]any
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	decoded := func(text string) string {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	dir := t.TempDir()
	for _, v := range file.Vectors {
		receipt := v.Receipt
		if receipt == nil {
			bytes := decoded(*v.ReceiptBase64)
			receipt = &bytes
		}
		args := []string{
			"verify", "--json", write(t, filepath.Join(dir, "receipt"), *receipt),
			write(t, filepath.Join(dir, "trusted"), file.TrustedKeys[v.TrustedKeys]),
		}
		if v.DocumentBase64 != nil {
			args = append(args, write(t, filepath.Join(dir, "document"), decoded(*v.DocumentBase64)))
		}
		if v.RequireReferences {
			args = append(args, "--require-references")
		}
		if v.RequireCurrent {
			args = append(args, "--require-current")
		}
		if v.RequireInclusion {
			args = append(args, "--require-inclusion")
		}
		if v.RequireTimestamp {
			args = append(args, "--require-timestamp")
		}
		if v.RequireWitnesses > 0 {
			args = append(args, "--require-witnesses", strconv.Itoa(v.RequireWitnesses))
		}
		if v.AcceptStampedBeforeRevocation {
			args = append(args, "--accept-stamped-before-revocation")
		}
		var out, errs bytes.Buffer
		a := &app{&cli.App{Out: &out, Errs: &errs, Now: func() time.Time { return v.Now }}}
		if code := a.Run(context.Background(), a.rootCommand(), args); code != v.Expect.ExitCode {
			t.Errorf("%s: exit code %d, want %d: %s", v.Name, code, v.Expect.ExitCode, errs.String())
			continue
		}
		if v.Expect.Findings == nil {
			if out.Len() != 0 || errs.Len() == 0 {
				t.Errorf("%s: %s%s", v.Name, out.String(), errs.String())
			}
			continue
		}
		var printed map[string]any
		if err := json.Unmarshal(out.Bytes(), &printed); err != nil {
			t.Fatal(v.Name, err)
		}
		for name, want := range v.Expect.Findings {
			if got, ok := printed[name]; !ok || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s is %v, want %v", v.Name, name, got, want)
			}
		}
	}
	if len(file.Vectors) < 200 {
		t.Errorf("%d vectors", len(file.Vectors))
	}
}
