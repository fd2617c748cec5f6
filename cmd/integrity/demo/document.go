package demo

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"time"

	"integrityledger/domain/say"

	"codeberg.org/go-pdf/fpdf"
	"github.com/boombuler/barcode/qr"
)

// document is the content of a PDF.
type document struct {
	reference       string
	version         int32
	generatedAt     time.Time
	downloadURL     string // the principal QR code, of this system
	verificationURL string // the second QR code; empty if no link could be reserved
}

// Labels of the two QR codes.
const (
	downloadLabel     = "Download this document (origin)"
	verificationLabel = "Verification / Verificación (external service)"
)

// render creates the final bytes. Nothing is added to them afterwards.
func (d document) render() ([]byte, error) {
	pdf := fpdf.New("P", "mm", "A4", "")
	latin := pdf.UnicodeTranslatorFromDescriptor("") // the built-in fonts use code page 1252
	pdf.SetTitle("Delivery note "+d.reference, true)
	pdf.SetCreationDate(d.generatedAt)
	pdf.SetModificationDate(d.generatedAt)
	pdf.AddPage()
	pdf.SetFont("Helvetica", "B", 18)
	pdf.CellFormat(0, 12, "Delivery note", "", 1, "L", false, 0, "")
	pdf.SetFont("Helvetica", "", 11)
	for _, line := range [][2]string{
		{"Document", d.reference}, {"Version", fmt.Sprint(d.version)},
		{"Generated", d.generatedAt.UTC().Format(time.RFC3339)},
	} {
		pdf.CellFormat(32, 7, line[0], "", 0, "L", false, 0, "")
		pdf.CellFormat(0, 7, line[1], "", 1, "L", false, 0, "")
	}
	if err := addCode(pdf, latin(downloadLabel), d.downloadURL, 10, 60, 60); err != nil {
		return nil, err
	}
	if d.verificationURL != "" {
		if err := addCode(pdf, latin(verificationLabel), d.verificationURL, 110, 60, 40); err != nil {
			return nil, err
		}
		pdf.SetXY(110, 112)
		pdf.SetFont("Helvetica", "", 8)
		pdf.MultiCell(
			80, 4,
			latin(
				"Compares a copy by its SHA-256. The service has not seen, reviewed or approved this document, and the link is "+
					"no authorization to download it.",
			),
			"", "L", false,
		)
	}
	var out bytes.Buffer
	if err := pdf.Output(&out); err != nil {
		return nil, say.Errorf("PDF: %w", err)
	}
	return out.Bytes(), nil
}

// addCode draws a QR code of size mm with its label above. Both link to the address.
func addCode(pdf *fpdf.Fpdf, label, address string, x, y, size float64) error {
	picture, err := code(address)
	if err != nil {
		return err
	}
	options := fpdf.ImageOptions{ImageType: "PNG"}
	pdf.RegisterImageOptionsReader(address, options, bytes.NewReader(picture))
	pdf.SetXY(x, y-6)
	pdf.SetFont("Helvetica", "B", 9)
	pdf.CellFormat(80, 5, label, "", 0, "L", false, 0, address)
	pdf.ImageOptions(address, x, y, size, size, false, options, 0, address)
	return pdf.Error()
}

const (
	modulePixels = 4
	quietZone    = 4 // modules around the symbol (ISO/IEC 18004)
)

// code renders a QR code as an 8-bit grey PNG, including the quiet zone.
func code(text string) ([]byte, error) {
	symbol, err := qr.Encode(text, qr.Q, qr.Auto)
	if err != nil {
		return nil, say.Errorf("QR code: %w", err)
	}
	modules := symbol.Bounds().Dx()
	side := (modules + 2*quietZone) * modulePixels
	picture := image.NewGray(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			module := image.Pt(x/modulePixels-quietZone, y/modulePixels-quietZone)
			shade := color.Color(color.White)
			if module.In(symbol.Bounds()) {
				shade = symbol.At(module.X, module.Y)
			}
			picture.Set(x, y, shade)
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, picture); err != nil {
		return nil, say.Errorf("QR code: %w", err)
	}
	return out.Bytes(), nil
}
