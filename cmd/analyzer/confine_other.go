//go:build !amd64 && !arm64

package analyzer

import "errors"

// confine refuses: without a filter of this architecture's numbers nothing is analysed.
func confine() error { return errors.New("there is no filter for this architecture") }
