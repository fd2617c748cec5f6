package edge

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Contain calls do and returns a panic as an error.
func Contain(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return do()
}

// panicError is a panic as an error. The value of a panic may contain anything, so only the text of a runtime error is
// kept.
type panicError struct {
	What  string
	Stack string
}

// newPanicError wraps a recovered value, with the stack of the panic.
func newPanicError(value any) *panicError {
	p := &panicError{What: fmt.Sprintf("a value of type %T", value), Stack: string(debug.Stack())}
	e, _ := value.(error)
	if fault, ok := errors.AsType[runtime.Error](e); ok {
		p.What = fault.Error()
	}
	return p
}

func (p *panicError) Error() string { return "panic: " + p.What }
