package analyzer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"integrityledger/cmd/analyzer/detect"
	"integrityledger/domain/analysis"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// maxAttachments limits the answer of a child that reads attached files, which are in base64.
const maxAttachments = 2*detect.MaxAttachedBytes + maxAnswer

var errUnconfined = say.Errorf(
	"the PDF was not read, because its reader cannot be confined on this machine: save the attached files with another " +
		"program, such as pdfdetach -saveall, and verify them",
)

// attached is the answer of a child that reads attached files.
type attached struct {
	Files      []evidence.ReportFile `json:"files"`
	Unreadable bool                  `json:"unreadable"`
}

// Attachments reads the files attached to a PDF in a confined child, as Analyze reads files. The error is
// evidence.ErrUnreadableReport whatever is wrong with the PDF.
func Attachments(ctx context.Context, file *os.File, size int64) ([]evidence.ReportFile, error) {
	a, err := New(Config{Workers: 1, CPU: 10 * time.Second, Wall: 20 * time.Second})
	if err != nil {
		return nil, err
	}
	out, reason, err := a.child(ctx, file, request{Size: size, Memory: a.cfg.Memory, Attachments: true}, maxAttachments)
	switch {
	case err != nil:
		return nil, fmt.Errorf("analyzer: %w", err)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case reason == analysis.ReasonIsolation:
		return nil, errUnconfined
	case reason != "":
		return nil, evidence.ErrUnreadableReport
	}
	var said attached
	decoder := json.NewDecoder(bytes.NewReader(out.kept))
	decoder.DisallowUnknownFields()
	if out.cut || decoder.Decode(&said) != nil || said.Unreadable {
		return nil, evidence.ErrUnreadableReport
	}
	return said.Files, nil
}

// readAttachments is the work of the child.
func readAttachments(file *os.File, size int64) int {
	files, err := detect.Attachments(file, size)
	if json.NewEncoder(os.Stdout).Encode(attached{files, err != nil}) != nil {
		return 1
	}
	return 0
}
