package edge

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Contain makes an error of a panic.
func Contain(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return do()
}

// panicError is a panic as an error. The value of a panic may hold anything, so only a runtime error's own words are
// kept.
type panicError struct {
	What  string
	Stack string
}

// newPanicError makes an error of a recovered value, with the stack of the caller.
func newPanicError(value any) *panicError {
	p := &panicError{What: fmt.Sprintf("a value of type %T", value), Stack: string(debug.Stack())}
	e, _ := value.(error)
	if fault, ok := errors.AsType[runtime.Error](e); ok {
		p.What = fault.Error()
	}
	return p
}

func (p *panicError) Error() string { return "panic: " + p.What }
