package handlers

import (
	"net/http"
	"strconv"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
)

const (
	// sequenceHeader tells, on the answer to every write, the organization's sequence after it: reading after that
	// sequence shows the write.
	sequenceHeader = "Integrity-Sequence"
	// readAfterHeader names the least sequence of the organization from which a caller wants a reading request
	// answered. A replica that has replayed it may answer then, even where the primary is further; without the header
	// every answer shows all that was committed before the request.
	readAfterHeader = "Integrity-Read-After"
)

// readAfter notes the caller's readAfterHeader, where there is one.
func readAfter(r *http.Request) error {
	values := r.Header.Values(readAfterHeader)
	if len(values) == 0 {
		return nil
	}
	sequence, err := strconv.ParseInt(values[0], 10, 64)
	if len(values) != 1 || err != nil || strconv.FormatInt(sequence, 10) != values[0] || sequence < 0 || sequence > strictjson.MaxInteger {
		return domain.Invalid([]domain.FieldError{{
			Pointer: "", Code: strictjson.CodeInteger,
			Message: readAfterHeader + " must be one integer from 0 to 9007199254740991 in plain digits: the " + sequenceHeader + " of an earlier answer, or a sequence of the feed",
		}})
	}
	callOf(r).access.ReadAfter = &sequence
	return nil
}
