package clientcmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// linesHead is the first line of a copy in JSON lines.
type linesHead struct {
	copyHead
	Epoch int64 `json:"epoch"`
}

// linesCopy is a copy of a feed in JSON lines: a head, then one event a line as the service gives it. The sequence of
// the last whole line is the cursor, so the two cannot disagree; a line that a crash cut off is cut away.
type linesCopy struct {
	file          *os.File
	head          copyHead
	cursor, epoch int64
}

func openLines(path string, head copyHead) (_ *linesCopy, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	c := &linesCopy{file: f, head: head}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.New("another process writes this file: run one at a time")
	}
	end, err := c.read()
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(end); err != nil {
		return nil, err
	}
	_, err = f.Seek(end, io.SeekStart)
	return c, err
}

// read finds the end of the last whole line.
func (c *linesCopy) read() (end int64, err error) {
	lines := bufio.NewReaderSize(c.file, 1<<20)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		if number == 1 {
			var h linesHead
			if err := json.Unmarshal(line, &h); err != nil || h.Service == "" || h.Epoch == 0 {
				return 0, errors.New("it must be a file of this command, or not exist yet")
			}
			if err := h.check(c.head); err != nil {
				return 0, err
			}
			c.epoch = h.Epoch
		} else {
			var e wire.FeedEvent
			if err := json.Unmarshal(line, &e); err != nil || e.Sequence <= c.cursor {
				return 0, fmt.Errorf("line %d is not an event that follows the one before", number)
			}
			c.cursor = e.Sequence
		}
		end += int64(len(line))
	}
}

func (c *linesCopy) position() (cursor, epoch int64) { return c.cursor, c.epoch }

// store appends the page and waits for the disk.
func (c *linesCopy) store(_ context.Context, page client.Page) (added int, err error) {
	var b bytes.Buffer
	if c.epoch == 0 {
		text, err := json.Marshal(linesHead{c.head, page.Epoch})
		if err != nil {
			return 0, err
		}
		b.Write(append(text, '\n'))
	}
	for _, event := range page.Events {
		if err := json.Compact(&b, event.Raw); err != nil {
			return 0, err
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return 0, nil
	}
	if _, err := c.file.Write(b.Bytes()); err != nil {
		return 0, fmt.Errorf("store a page: %w", err)
	}
	if err := c.file.Sync(); err != nil {
		return 0, fmt.Errorf("store a page: %w", err)
	}
	c.cursor, c.epoch = page.Cursor, page.Epoch
	return len(page.Events), nil
}

func (c *linesCopy) Close() error { return c.file.Close() }
