package judges

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"integrityledger/handlers/web"
)

// TestDrawings: the QR codes and stamps that the console draws decode to their link, as PNG in both sizes and as SVG
// drawn by a browser. The reader searches for the code in the picture, as a phone does.
func TestDrawings(t *testing.T) {
	t.Parallel()
	const link = "https://integridad.example.org/integrity/oz6d23ozgcq6fa7gvledilu5ii"
	code, err := web.DrawQR(link)
	if err != nil {
		t.Fatal(err)
	}
	stamp, err := web.DrawStamp("Compruebe este documento:", link)
	if err != nil {
		t.Fatal(err)
	}
	for name, drawing := range map[string]*web.Drawing{"code": code, "stamp": stamp} {
		for _, module := range []int{web.SmallModule, web.LargeModule} {
			picture, err := drawing.PNG(module)
			if err != nil {
				t.Fatal(err)
			}
			reads(t, name, picture, link)
		}
		reads(t, name+" in a browser", inBrowser(t, drawing.SVG()), link)
	}
}

// inBrowser returns a picture of an SVG as Chromium draws it.
func inBrowser(t *testing.T, drawing []byte) []byte {
	t.Helper()
	directory := t.TempDir()
	file, shot := filepath.Join(directory, "drawing.svg"), filepath.Join(directory, "drawing.png")
	if err := os.WriteFile(file, drawing, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.CommandContext(
		t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--force-device-scale-factor=3", "--window-size=600,300", "--user-data-dir="+directory, "--screenshot="+shot, "file://"+file,
	).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	picture, err := os.ReadFile(shot)
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

func reads(t *testing.T, name string, drawn []byte, link string) {
	t.Helper()
	var picture image.Image
	picture, err := png.Decode(bytes.NewReader(drawn))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		t.Fatal(err)
	}
	read, err := qrcode.NewQRCodeReader().Decode(
		bitmap, map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_TRY_HARDER: true},
	)
	if err != nil || read.GetText() != link {
		t.Errorf("%s reads %v: %v", name, read, err)
	}
}
