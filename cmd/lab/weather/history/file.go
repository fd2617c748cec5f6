package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Writer writes a history. It is safe for concurrent use.
type Writer struct {
	directory string
	began     time.Time
	number    atomic.Int64

	mu   sync.Mutex
	file *os.File
	out  *bufio.Writer
	err  error // the first error; nothing is written after it
}

// Create creates the directory of a run, which must not contain a history yet. The run begins now.
func Create(directory string, h Header) (*Writer, error) {
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(directory, FileName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	w := &Writer{directory: directory, began: time.Now(), file: file, out: bufio.NewWriterSize(file, 1<<20)}
	w.put(Entry{Kind: KindHeader, Header: &h})
	return w, nil
}

// Directory returns the directory for files that entries name.
func (w *Writer) Directory() string { return w.directory }

// Now returns the time on the run's clock.
func (w *Writer) Now() int64 { return int64(time.Since(w.began)) }

// Number returns a new number for a call, a batch or a fault.
func (w *Writer) Number() int64 { return w.number.Add(1) }

// Call writes a finished call. A zero Number is replaced by a new one, a zero End by now.
func (w *Writer) Call(c Call) {
	if c.Number == 0 {
		c.Number = w.Number()
	}
	if c.End == 0 {
		c.End = w.Now()
	}
	w.put(Entry{Kind: KindCall, Call: &c})
}

// Fault writes a healed fault.
func (w *Writer) Fault(f Fault) {
	if f.Number == 0 {
		f.Number = w.Number()
	}
	w.put(Entry{Kind: KindFault, Fault: &f})
}

// End writes a part of the end state.
func (w *Writer) End(e End) { w.put(Entry{Kind: KindEnd, End: &e}) }

func (w *Writer) put(e Entry) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false) // data of events must stay as signed
	err := encoder.Encode(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	if w.err == nil {
		_, w.err = w.out.Write(line.Bytes())
	}
}

// Close flushes the history, and returns the first write error.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.err, w.out.Flush(), w.file.Close())
}

// History is a whole run in memory.
type History struct {
	Directory string
	Header    Header
	Calls     []Call // by start
	Faults    []Fault
	End       EndState
}

// EndState holds all parts of the end state by kind, in the file's order.
type EndState struct {
	Log         []LogEvent
	Feed        []FeedEvent
	Stream      []Message
	Webhooks    []Webhook
	Deliveries  []Delivery
	Receipts    []Receipt
	Usage       []Usage
	Checkpoints []Checkpoint
	Leaves      *Leaves
	Evidence    []Evidence
	Trust       *Trust
	Verdicts    []Verdict
	Monitors    []Monitor
	Loss        *Loss
}

// Read reads the history of a directory.
func Read(directory string) (*History, error) {
	file, err := os.Open(filepath.Join(directory, FileName))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h := &History{Directory: directory}
	err = each(file, func(number int, e Entry) error {
		if (number == 1) != (e.Kind == KindHeader) {
			return errors.New("the first entry, and no other, must be the header")
		}
		return h.add(e)
	})
	if err == nil && h.Header.StartedAt == "" {
		err = errors.New("it has no header with startedAt")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	h.sort()
	return h, nil
}

// each reads the entries one by one. Lines may have any length.
func each(r io.Reader, take func(number int, e Entry) error) error {
	in := bufio.NewReaderSize(r, 1<<20)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: it must end with a newline: %w", number, err)
		}
		var e Entry
		d := json.NewDecoder(bytes.NewReader(line))
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if err := take(number, e); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

func (h *History) add(e Entry) error {
	switch {
	case e.Kind == KindHeader && e.Header != nil:
		h.Header = *e.Header
	case e.Kind == KindCall && e.Call != nil:
		if e.Call.End < e.Call.Start || e.Call.RequestID == "" && e.Call.Operation.Writes() {
			return errors.New("a call must end after its start, and one that writes must have a requestId")
		}
		h.Calls = append(h.Calls, *e.Call)
	case e.Kind == KindFault && e.Fault != nil:
		h.Faults = append(h.Faults, *e.Fault)
	case e.Kind == KindEnd && e.End != nil:
		return h.End.add(e.End)
	default:
		return fmt.Errorf("an entry of kind %q must have that member", e.Kind)
	}
	return nil
}

func (s *EndState) add(e *End) error {
	before := *e
	switch {
	case e.Log != nil:
		s.Log, before.Log = append(s.Log, *e.Log), nil
	case e.Feed != nil:
		s.Feed, before.Feed = append(s.Feed, *e.Feed), nil
	case e.Stream != nil:
		s.Stream, before.Stream = append(s.Stream, *e.Stream), nil
	case e.Webhook != nil:
		s.Webhooks, before.Webhook = append(s.Webhooks, *e.Webhook), nil
	case e.Delivery != nil:
		s.Deliveries, before.Delivery = append(s.Deliveries, *e.Delivery), nil
	case e.Receipt != nil:
		s.Receipts, before.Receipt = append(s.Receipts, *e.Receipt), nil
	case e.Usage != nil:
		s.Usage, before.Usage = append(s.Usage, *e.Usage), nil
	case e.Checkpoint != nil:
		s.Checkpoints, before.Checkpoint = append(s.Checkpoints, *e.Checkpoint), nil
	case e.Leaves != nil:
		s.Leaves, before.Leaves = e.Leaves, nil
	case e.Evidence != nil:
		s.Evidence, before.Evidence = append(s.Evidence, *e.Evidence), nil
	case e.Trust != nil:
		s.Trust, before.Trust = e.Trust, nil
	case e.Verdict != nil:
		s.Verdicts, before.Verdict = append(s.Verdicts, *e.Verdict), nil
	case e.Monitor != nil:
		s.Monitors, before.Monitor = append(s.Monitors, *e.Monitor), nil
	case e.Loss != nil:
		s.Loss, before.Loss = e.Loss, nil
	default:
		return errors.New("a part of the end must have one member")
	}
	if before != (End{}) {
		return errors.New("a part of the end must have one member, not several")
	}
	return nil
}
