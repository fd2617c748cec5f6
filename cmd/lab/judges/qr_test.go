package judges

import (
	"image"
	"image/color"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
)

// TestQRCode: the code on paper decodes to the record's verification link.
func TestQRCode(t *testing.T) {
	t.Parallel()
	s := serve(t)
	record, err := s.worker.Register(t.Context(), s.declaration("d"))
	if err != nil {
		t.Fatal(err)
	}
	link := s.base + "/integrity/" + record.PublicID
	answer, err := http.Get(link + "/qr.svg")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	drawing, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	const scale = 4
	number := func(text []byte) int {
		n, _ := strconv.Atoi(string(text)) // digits only
		return n
	}
	side := regexp.MustCompile(`viewBox="0 0 (\d+)`).FindSubmatch(drawing)
	if side == nil {
		t.Fatalf("%d: %s", answer.StatusCode, drawing)
	}
	picture := image.NewGray(image.Rect(0, 0, number(side[1])*scale, number(side[1])*scale))
	for i := range picture.Pix {
		picture.Pix[i] = 0xff
	}
	for _, module := range regexp.MustCompile(`M(\d+) (\d+)h1v1h-1z`).FindAllSubmatch(drawing, -1) {
		for dx := range scale {
			for dy := range scale {
				picture.SetGray(number(module[1])*scale+dx, number(module[2])*scale+dy, color.Gray{})
			}
		}
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		t.Fatal(err)
	}
	// The code is drawn straight, so the reader need not search for its corners. That search fails for one code in two
	// hundred.
	read, err := qrcode.NewQRCodeReader().Decode(
		bitmap, map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true},
	)
	if err != nil || read.GetText() != link {
		t.Errorf("the code reads %v, not %s: %v", read, link, err)
	}
}
