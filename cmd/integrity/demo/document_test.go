package demo

import (
	"bytes"
	"image/png"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
)

// codes decodes the QR codes of a PDF, in the order in which its page draws them.
func codes(t *testing.T, pdf []byte) (texts []string, content string) {
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
	for _, image := range images {
		picture, err := png.Decode(image)
		if err != nil {
			t.Fatal(err)
		}
		bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
		if err != nil {
			t.Fatal(err)
		}
		// Told that there is nothing but the symbol: looking for it in a picture, the reader misses one of some hundred.
		result, err := qrcode.NewQRCodeReader().Decode(bitmap, map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true})
		if err != nil {
			t.Fatalf("%s cannot be read: %v", image.Name, err)
		}
		decoded["/"+image.Name+" Do"] = result.GetText()
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

func TestDocumentCodes(t *testing.T) {
	d := document{
		reference: "doc-1", version: 1, generatedAt: time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC),
		downloadURL: "http://127.0.0.1:8090/documents/token", verificationURL: "https://ledger.example.org/integrity/" + strings.Repeat("a", 26),
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
		got, content := codes(t, pdf)
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
