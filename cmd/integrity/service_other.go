//go:build !linux

package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/analyzer/detect"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/domain/evidence"
)

// attachments reads the files attached to a PDF in this process, because children are confined on Linux only. The
// parser's limits bound its memory, and the process ends after the error of a parser that takes too long.
var attachments clientcmd.Attachments = func(
	ctx context.Context, file *os.File, size int64,
) (files []evidence.ReportFile, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	read := make(chan struct{})
	go func() {
		defer close(read)
		files, err = detect.Attachments(file, size)
	}()
	select {
	case <-read:
		return files, err
	case <-ctx.Done():
		return nil, evidence.ErrUnreadableReport
	}
}

func (*app) serviceCommands(*cobra.Command) (server, operators, origins []*cobra.Command) {
	return nil, nil, nil
}
