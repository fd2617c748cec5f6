package analyzer

import (
	"context"
	"errors"
	"os"
	"time"

	"integrityledger/domain/analysis"
)

// Command is the hidden subcommand of cmd/integrity that is the child.
const Command = "analysis-child"

// Config sets the limits of an Analyzer; a zero member means its default.
type Config struct {
	Program string        // what is started, with the one argument Command; default: this program
	Workers int           // analyses at once; default and most: one a core
	Queue   int           // analyses that wait for a worker; default 16
	Memory  int64         // bytes of data of a child; default 512 MiB
	CPU     time.Duration // CPU time of a child, in whole seconds; default 20 s
	Wall    time.Duration // time from a child's start to its end; default 30 s
}

// Analyzer runs analyses, each in a process of its own. It is safe for concurrent use.
type Analyzer struct{}

// New makes an Analyzer.
func New(cfg Config) (*Analyzer, error) { return &Analyzer{}, nil }

// Analyze analyses the first size bytes of the open file, which it neither closes nor moves. declaredType and fileName
// are as in analysis.Input.
//
// A child that crashes, is too slow or too big gives a Report whose results are all inconclusive, not an error. The error
// is ctx.Err(), after the child was killed; or a domain.Error TEMPORARILY_UNAVAILABLE where the queue is full or the
// Analyzer is closed.
func (a *Analyzer) Analyze(ctx context.Context, file *os.File, size int64, declaredType, fileName string) (analysis.Report, error) {
	return analysis.Report{}, errors.New("not yet")
}

// Close refuses further analyses, kills the children and waits for them.
func (a *Analyzer) Close() {}
