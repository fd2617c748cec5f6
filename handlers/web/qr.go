package web

import (
	"fmt"
	"strings"

	"github.com/boombuler/barcode/qr"
)

const quietZone = 4 // modules around the symbol (ISO/IEC 18004)

// QR draws text as an SVG of black modules on white, whatever the scheme of the page: it is made for paper. A quarter
// of the symbol may be damaged (level Q).
func QR(text string) ([]byte, error) {
	code, err := qr.Encode(text, qr.Q, qr.Auto)
	if err != nil {
		return nil, fmt.Errorf("QR code: %w", err)
	}
	size := code.Bounds().Dx()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[1]d" shape-rendering="crispEdges"><path fill="#fff" d="M0 0h%[1]dv%[1]dH0z"/><path d="`,
		size+2*quietZone)
	for y := range size {
		for x := range size {
			if r, _, _, _ := code.At(x, y).RGBA(); r == 0 {
				fmt.Fprintf(&b, "M%d %dh1v1h-1z", x+quietZone, y+quietZone)
			}
		}
	}
	b.WriteString(`"/></svg>`)
	return []byte(b.String()), nil
}
