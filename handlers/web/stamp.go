package web

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"strings"
	"unicode/utf8"

	"github.com/boombuler/barcode/qr"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

const quietZone = 4 // modules around the symbol (ISO/IEC 18004)

// Sizes of a printed drawing, in printer's dots for a module of the QR code. A dot of DotsPerInch is 0.085 mm.
const (
	SmallModule = 6  // 0.5 mm
	LargeModule = 12 // 1 mm
	DotsPerInch = 300
)

// A stamp has its text beside the QR code, in lines of at most stampLine characters. Its measures are modules.
const (
	stampLine    = 30
	stampText    = 5.0 // the size of the font
	stampLeading = 7.0
)

// Drawing is a QR code, with lines of text beside it if it is a stamp. It is black on white in every color scheme,
// because it is made for paper. Text is drawn as outlines, so that it needs no font where it is printed. The unit is a
// module.
type Drawing struct {
	width, height int
	modules       []image.Point
	outlines      []outline
}

// outline is a contour of a letter, closed, with quadratic curves.
type outline struct {
	from   point
	curves []curve
}

type point struct{ x, y float32 }

// curve is a line to its last point if control is that point.
type curve struct{ control, to point }

// DrawQR draws text as a QR code. A quarter of the symbol may be damaged (level Q).
func DrawQR(text string) (*Drawing, error) {
	code, err := qr.Encode(text, qr.Q, qr.Auto)
	if err != nil {
		return nil, fmt.Errorf("QR code: %w", err)
	}
	size := code.Bounds().Dx()
	d := &Drawing{width: size + 2*quietZone, height: size + 2*quietZone}
	for y := range size {
		for x := range size {
			if r, _, _, _ := code.At(x, y).RGBA(); r == 0 {
				d.modules = append(d.modules, image.Pt(x+quietZone, y+quietZone))
			}
		}
	}
	return d, nil
}

// DrawStamp draws a link as a QR code, and beside it the label and the link as text.
func DrawStamp(label, link string) (*Drawing, error) {
	d, err := DrawQR(link)
	if err != nil {
		return nil, err
	}
	letters, err := sfnt.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("font of the stamp: %w", err)
	}
	lines := append([]string{label}, stampLines(link)...)
	left, widest := float32(d.width), float32(0)
	y := (float32(d.height)-stampLeading*float32(len(lines)-1))/2 + stampText*0.35 // about half the height of letters
	for _, line := range lines {
		end, err := d.write(letters, line, point{left, y})
		if err != nil {
			return nil, fmt.Errorf("text of the stamp: %w", err)
		}
		widest, y = max(widest, end-left), y+stampLeading
	}
	d.width += int(widest) + 1 + quietZone
	return d, nil
}

// stampLines breaks a link after slashes and, where a part is too long, anywhere.
func stampLines(link string) (lines []string) {
	line := ""
	for part := range strings.SplitAfterSeq(link, "/") {
		if line != "" && utf8.RuneCountInString(line+part) > stampLine {
			lines, line = append(lines, line), ""
		}
		for line += part; len(line) > stampLine; line = line[stampLine:] { // a URL is ASCII
			lines = append(lines, line[:stampLine])
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// write adds the outlines of a line of text that begins at a point of its base line, and returns where it ends.
func (d *Drawing) write(letters *sfnt.Font, text string, at point) (end float32, err error) {
	const em = 1000
	const scale = stampText / em / 64
	var buffer sfnt.Buffer
	for _, letter := range text {
		glyph, err := letters.GlyphIndex(&buffer, letter)
		if err != nil {
			return 0, err
		}
		segments, err := letters.LoadGlyph(&buffer, glyph, fixed.I(em), nil)
		if err != nil {
			return 0, err
		}
		place := func(p fixed.Point26_6) point { return point{at.x + float32(p.X)*scale, at.y + float32(p.Y)*scale} }
		for _, s := range segments {
			last := len(d.outlines) - 1
			switch s.Op {
			case sfnt.SegmentOpMoveTo:
				d.outlines = append(d.outlines, outline{from: place(s.Args[0])})
			case sfnt.SegmentOpLineTo:
				d.outlines[last].curves = append(d.outlines[last].curves, curve{place(s.Args[0]), place(s.Args[0])})
			case sfnt.SegmentOpQuadTo:
				d.outlines[last].curves = append(d.outlines[last].curves, curve{place(s.Args[0]), place(s.Args[1])})
			case sfnt.SegmentOpCubeTo: // TrueType has none
			}
		}
		advance, err := letters.GlyphAdvance(&buffer, glyph, fixed.I(em), font.HintingNone)
		if err != nil {
			return 0, err
		}
		at.x += float32(advance) * scale
	}
	return at.x, nil
}

// Millimetres returns the printed width and height with modules of so many dots.
func (d *Drawing) Millimetres(module int) (width, height float64) {
	dot := 25.4 / DotsPerInch
	return float64(d.width*module) * dot, float64(d.height*module) * dot
}

// SVG returns the drawing for any size. Programs that place it at its own size print small modules.
func (d *Drawing) SVG() []byte {
	var b strings.Builder
	width, height := d.Millimetres(SmallModule)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.2fmm" height="%.2fmm" `, width, height)
	fmt.Fprintf(&b, `viewBox="0 0 %[1]d %[2]d"><path fill="#fff" d="M0 0h%[1]dv%[2]dH0z"/>`, d.width, d.height)
	b.WriteString(`<path shape-rendering="crispEdges" d="`)
	for _, m := range d.modules {
		fmt.Fprintf(&b, "M%d %dh1v1h-1z", m.X, m.Y)
	}
	if b.WriteString(`"/>`); len(d.outlines) > 0 {
		b.WriteString(`<path d="`)
		for _, o := range d.outlines {
			fmt.Fprintf(&b, "M%.2f %.2f", o.from.x, o.from.y)
			for _, c := range o.curves {
				if c.control == c.to {
					fmt.Fprintf(&b, "L%.2f %.2f", c.to.x, c.to.y)
				} else {
					fmt.Fprintf(&b, "Q%.2f %.2f %.2f %.2f", c.control.x, c.control.y, c.to.x, c.to.y)
				}
			}
			b.WriteByte('z')
		}
		b.WriteString(`"/>`)
	}
	b.WriteString(`</svg>`)
	return []byte(b.String())
}

// PNG returns the drawing with modules of so many dots, marked as DotsPerInch.
func (d *Drawing) PNG(module int) ([]byte, error) {
	picture := image.NewGray(image.Rect(0, 0, d.width*module, d.height*module))
	draw.Draw(picture, picture.Bounds(), image.White, image.Point{}, draw.Src)
	for _, m := range d.modules {
		square := image.Rect(m.X, m.Y, m.X+1, m.Y+1)
		square.Min, square.Max = square.Min.Mul(module), square.Max.Mul(module)
		draw.Draw(picture, square, image.Black, image.Point{}, draw.Src)
	}
	if len(d.outlines) > 0 {
		scale := float32(module)
		r := vector.NewRasterizer(picture.Bounds().Dx(), picture.Bounds().Dy())
		for _, o := range d.outlines {
			r.MoveTo(o.from.x*scale, o.from.y*scale)
			for _, c := range o.curves {
				r.QuadTo(c.control.x*scale, c.control.y*scale, c.to.x*scale, c.to.y*scale)
			}
			r.ClosePath()
		}
		r.Draw(picture, picture.Bounds(), image.NewUniform(color.Black), image.Point{})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		return nil, fmt.Errorf("draw a PNG: %w", err)
	}
	return withDensity(b.Bytes()), nil
}

// withDensity adds the chunk pHYs, in dots per metre, after the header of a PNG (PNG specification, 11.3.4.3).
func withDensity(encoded []byte) []byte {
	const header = 8 + 4 + 4 + 13 + 4 // the signature and the chunk IHDR
	perMetre := uint32(DotsPerInch * 10000 / 254)
	chunk := binary.BigEndian.AppendUint32(nil, 9)
	chunk = append(chunk, "pHYs"...)
	chunk = binary.BigEndian.AppendUint32(chunk, perMetre)
	chunk = append(binary.BigEndian.AppendUint32(chunk, perMetre), 1)
	chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
	return append(append(append([]byte{}, encoded[:header]...), chunk...), encoded[header:]...)
}
