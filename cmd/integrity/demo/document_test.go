package demo

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
)

// codes returns the texts of a PDF's QR codes, chosen from the possible ones, in the order in which the page draws
// them.
func codes(t *testing.T, pdf []byte, possible ...string) (texts []string, content string) {
	t.Helper()
	api.DisableConfigDir()
	ctx, err := api.ReadValidateAndOptimize(bytes.NewReader(pdf), model.NewDefaultConfiguration())
	if err != nil {
		t.Fatal(err)
	}
	reader, err := pdfcpu.ExtractPageContent(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	content = string(text)
	images, err := pdfcpu.ExtractPageImages(ctx, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	decoded := map[string]string{}
	for _, drawn := range images {
		picture, err := png.Decode(drawn)
		if err != nil {
			t.Fatal(err)
		}
		name := "/" + drawn.Name + " Do"
		for _, text := range possible {
			if samePicture(t, picture, text) {
				decoded[name] = text
			}
		}
		if decoded[name] == "" {
			t.Fatalf("%s is the code of none of %q", drawn.Name, possible)
		}
	}
	for len(texts) < len(decoded) {
		first, name := len(content), ""
		for n := range decoded {
			if at := strings.Index(content, n); at >= 0 && at <= first {
				first, name = at, n
			}
		}
		if name == "" {
			t.Fatalf("an image is not drawn: %v in %s", decoded, content)
		}
		texts, content = append(texts, decoded[name]), strings.Replace(content, name, "drawn", 1)
	}
	return texts, content
}

// samePicture compares a picture with a text's QR code, pixel by pixel.
func samePicture(t *testing.T, picture image.Image, text string) bool {
	t.Helper()
	made, err := code(text)
	if err != nil {
		t.Fatal(err)
	}
	want, err := png.Decode(bytes.NewReader(made))
	if err != nil {
		t.Fatal(err)
	}
	if picture.Bounds() != want.Bounds() {
		return false
	}
	for y := range want.Bounds().Dy() {
		for x := range want.Bounds().Dx() {
			if color.GrayModel.Convert(picture.At(x, y)) != color.GrayModel.Convert(want.At(x, y)) {
				return false
			}
		}
	}
	return true
}

func TestDocumentCodes(t *testing.T) {
	d := document{
		reference: "doc-1", version: 1, generatedAt: time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC),
		downloadURL:     "http://127.0.0.1:8090/documents/token",
		verificationURL: "https://ledger.example.org/integrity/" + strings.Repeat("a", 26),
	}
	for _, link := range []string{d.verificationURL, ""} {
		d.verificationURL = link
		pdf, err := d.render()
		if err != nil {
			t.Fatal(err)
		}
		want := []string{d.downloadURL, link}
		if link == "" {
			want = want[:1]
		}
		got, content := codes(t, pdf, want...)
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("the QR codes are %q, want %q", got, want)
		}
		// Each label comes right before its code.
		download, verification := strings.Index(content, "Download this document"), strings.Index(content, "external service")
		first := strings.Index(content, "drawn")
		if download < 0 || download > first || (verification > first) != (link != "") {
			t.Errorf("labels: download at %d, first code at %d, verification at %d", download, first, verification)
		}
		for _, address := range want {
			if !bytes.Contains(pdf, []byte("/URI ("+address+")")) {
				t.Errorf("the PDF has no link to %s", address)
			}
		}
	}
}
