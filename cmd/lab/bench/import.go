package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"integrityledger/cmd/integrity/config"
)

const (
	targetImport      = "declarations of an import, with three kills"
	targetQuietImport = "quiet tenant's p99 beside an import : alone"

	importKills = 3
)

// imports measures integrity import of a file of declarations, killed three times and begun again, beside a quiet
// tenant of the same shard.
func (r *run) imports(ctx context.Context, result *Result) error {
	importing := r.lab.one[0]
	quiet := r.newTenant(r.service, r.lab.neighbour(importing), 64, 1, 20*time.Millisecond)
	path := r.file("import.jsonl")
	r.Progress(fmt.Sprintf("a file with %d declarations", r.Import))
	if err := r.writeDeclarations(path); err != nil {
		return err
	}
	f := &Flood{Floods: []FloodPhase{{Name: "an import, killed", Concurrency: 1}}}
	var err error
	if f.Note, err = r.settle(ctx); err != nil {
		return err
	}
	r.Progress("a quiet tenant alone")
	// The 99th percentile of a few registrations would be the slowest of them.
	if f.Alone, err = quiet.quietly().lasting(ctx, 3*floodRounds*r.Duration); err != nil {
		return err
	}
	phase := &f.Floods[0]
	imported := make(chan error, 1)
	ended, end := context.WithCancel(ctx)
	defer end()
	began := time.Now()
	go func() {
		defer end()
		imported <- r.importKilled(ctx, importing, path)
		phase.Flooding.PerSecond = float64(r.Import) / time.Since(began).Seconds()
	}()
	phase.Quiet, err = quiet.quietly().until(ctx, ended.Done())
	if err := errors.Join(<-imported, err); err != nil {
		return err
	}
	<-ended.Done()
	importing.acknowledged.Add(r.Import)
	phase.QuietRefused, phase.Flooding.Done = quiet.refused.Load(), r.Import
	slower := float64(phase.Quiet.P99) / float64(f.Alone.P99)
	r.measured[targetQuietImport] = measurement{value: slower, wall: slower, note: fmt.Sprintf(
		"p50 %s, p99 %s of %d registrations; alone %s, %s", shortDuration(phase.Quiet.P50), shortDuration(phase.Quiet.P99),
		phase.Quiet.Done, shortDuration(f.Alone.P50), shortDuration(f.Alone.P99))}
	r.measured[targetImport] = measurement{
		value: phase.Flooding.PerSecond, note: fmt.Sprintf("%d in %s", r.Import, time.Since(began).Round(time.Second)),
	}
	result.Flood = f
	return nil
}

// writeDeclarations writes a file with a declaration in each line.
func (r *run) writeDeclarations(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	var line []byte
	for range r.Import {
		line = append(r.lab.appendDeclaration(line[:0]), '\n')
		if _, err := out.Write(line); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(out.Flush(), file.Close())
}

// importKilled runs the command until the file is imported. In each quarter but the last, a kill ends it at a random
// moment, and it begins again.
func (r *run) importKilled(ctx context.Context, o *organization, path string) error {
	before, err := r.lab.sequence(ctx, o)
	if err != nil {
		return err
	}
	quarter := r.Import / (importKills + 1)
	for n := range int64(importKills + 1) {
		var out bytes.Buffer
		command := exec.CommandContext(ctx, r.Integrity, "import", path) //nolint:gosec // the program that is measured
		command.Env = append(foreignEnviron(),
			config.VariableAPIKey+"="+strings.TrimPrefix(o.header.Get("Authorization"), "Bearer "),
			config.VariableBaseURL+"="+r.service.base)
		command.Stdout, command.Stderr = &out, &out
		if err := command.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		if n < importKills {
			at := before + n*quarter + rand.Int64N(quarter) //nolint:gosec // any moment will do
			err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
				if len(ended) > 0 {
					return true, nil
				}
				sequence, err := r.lab.sequence(ctx, o)
				return sequence >= at, err
			})
			_ = command.Process.Kill() // it may have ended
			if err != nil {
				return errors.Join(err, <-ended)
			}
		}
		err := <-ended
		if n < importKills && command.ProcessState.Exited() || n == importKills && err != nil {
			return fmt.Errorf("integrity import ended by itself, %s: %.1000s", command.ProcessState, out.Bytes())
		}
		r.Progress(fmt.Sprintf("integrity import: %s", command.ProcessState))
	}
	return nil
}

// sequence returns the number of events of an organization.
func (l *lab) sequence(ctx context.Context, o *organization) (n int64, err error) {
	err = l.read.QueryRow(
		ctx, `SELECT sequence FROM organization_state WHERE shard = $1 AND organization_id = $2`, o.id.Shard(),
		[16]byte(o.id),
	).Scan(&n)
	return n, err
}
