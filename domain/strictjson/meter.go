package strictjson

import (
	"errors"
	"sync/atomic"
)

// ErrStopped says that Meter.Stop ended the reading of a text.
var ErrStopped = errors.New("the reading was stopped")

// Meter counts the steps of reading what one request carries, and can end them. A step is a value, a name or a problem
// that is looked at, or a byte that is scanned; a text of n bytes takes a small multiple of n, whatever it holds. The
// zero Meter counts and never ends. It is safe for concurrent use.
type Meter struct {
	// Stop, where set, is asked between values; once it answers true, Parse ends with ErrStopped.
	Stop func() bool

	steps atomic.Int64
}

// Steps is how many steps were taken so far. Those of an Object count once it is asked for its Problems.
func (m *Meter) Steps() int64 { return m.steps.Load() }

func (m *Meter) add(steps int64) { m.steps.Add(steps) }

// stopped is asked once every stopInterval values.
func (m *Meter) stopped() bool { return m.Stop != nil && m.Stop() }
