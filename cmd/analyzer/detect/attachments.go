package detect

import (
	"errors"
	"io"
	"maps"
	"slices"

	"integrityledger/domain/evidence"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
)

// Limits of the files attached to a PDF. An evidence report stays far below them.
const (
	MaxAttachedPDF   = 16 << 20 // bytes of the PDF
	maxAttachedFile  = 1 << 20  // bytes of a file
	MaxAttachedBytes = 4 << 20  // bytes of all files together
	maxAttachedNodes = 1000     // of the tree that names them
)

// Attachments returns the files attached to a PDF as a whole (ISO 32000-2, 7.11.4), at most one more than
// evidence.MaxReportFiles. All errors are evidence.ErrUnreadableReport.
func Attachments(content io.ReaderAt, size int64) (files []evidence.ReportFile, err error) {
	if size > MaxAttachedPDF {
		return nil, evidence.ErrUnreadableReport
	}
	preparePDF()
	err = guarded(func() error {
		conf := model.NewDefaultConfiguration()
		conf.Cmd, conf.Offline, conf.Optimize, conf.Limits = model.LISTINFO, true, false, pdfLimits(size)
		c, err := pdfcpu.Read(io.NewSectionReader(content, 0, size), conf)
		if err != nil {
			return err
		}
		catalog, err := c.Catalog()
		if err != nil {
			return err
		}
		names, err := c.DereferenceDict(catalog["Names"])
		if err != nil || names == nil {
			return err
		}
		a := attachments{table: c.XRefTable}
		if err := a.node(names["EmbeddedFiles"], 0); err != nil {
			return err
		}
		if files = a.files; len(files) > evidence.MaxReportFiles {
			return nil
		}
		return a.complete()
	})
	if err != nil {
		return nil, evidence.ErrUnreadableReport
	}
	return files, nil
}

// complete fails if the PDF has a file that the name tree does not name: other readers would show it beside the others,
// and take it for verified.
func (a *attachments) complete() error {
	files := 0
	for _, entry := range a.table.Table {
		if entry == nil || entry.Free {
			continue
		}
		n, err := embedded(entry.Object, 0)
		if err != nil {
			return err
		}
		files += n
	}
	if files > len(a.files) {
		return errors.New("a file outside the name tree")
	}
	return nil
}

// embedded counts the specifications of embedded files in an object, without those that it only refers to.
func embedded(o types.Object, depth int) (files int, err error) {
	if depth > maxPDFDepth {
		return 0, errLimit
	}
	var parts []types.Object
	switch o := o.(type) {
	case types.Array:
		parts = o
	case types.StreamDict:
		return embedded(o.Dict, depth)
	case types.Dict:
		if o["EF"] != nil {
			files++
		}
		parts = slices.Collect(maps.Values(o))
	}
	for _, part := range parts {
		n, err := embedded(part, depth+1)
		if err != nil {
			return 0, err
		}
		files += n
	}
	return files, nil
}

// attachments walks the name tree of attached files.
type attachments struct {
	table        *model.XRefTable
	files        []evidence.ReportFile
	nodes, bytes int
}

func (a *attachments) node(o types.Object, depth int) error {
	d, err := a.table.DereferenceDict(o)
	if err != nil || d == nil {
		return err
	}
	if a.nodes++; a.nodes > maxAttachedNodes || depth > maxPDFDepth {
		return errLimit
	}
	kids, err := a.table.DereferenceArray(d["Kids"])
	if err != nil {
		return err
	}
	for _, kid := range kids {
		if err := a.node(kid, depth+1); err != nil {
			return err
		}
	}
	names, err := a.table.DereferenceArray(d["Names"])
	if err != nil {
		return err
	}
	for i := 1; i < len(names) && len(a.files) <= evidence.MaxReportFiles; i += 2 {
		if err := a.file(names[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *attachments) file(o types.Object) error {
	d, err := a.table.DereferenceDict(o)
	if err != nil || d == nil {
		return err
	}
	name := d["UF"]
	if name == nil {
		name = d["F"]
	}
	text, err := a.table.DereferenceStringOrHexLiteral(name, model.V10, nil)
	if err != nil {
		return err
	}
	streams, err := a.table.DereferenceDict(d["EF"])
	if err != nil || streams == nil {
		return err
	}
	for _, other := range streams {
		if other != streams["F"] {
			return errors.New("several contents of one file")
		}
	}
	stream, _, err := a.table.DereferenceStreamDict(streams["F"])
	switch {
	case err != nil:
		return err
	case stream == nil:
		return errors.New("no content")
	case stream.FilterPipeline == nil:
		stream.Content = stream.Raw
	default:
		if err := stream.DecodeWithLimit(maxAttachedFile); err != nil {
			return err
		}
	}
	if a.bytes += len(stream.Content); len(stream.Content) > maxAttachedFile || a.bytes > MaxAttachedBytes {
		return errLimit
	}
	a.files = append(a.files, evidence.ReportFile{Name: text, Content: stream.Content})
	return nil
}
