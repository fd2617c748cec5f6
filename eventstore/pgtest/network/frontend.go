package network

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// maxText is the number of bytes of a message that are kept. Statements that end a transaction are short.
const maxText = 256

// frontend parses the messages of a PostgreSQL client, whatever pieces they arrive in. Bytes of another protocol are
// never taken for a COMMIT, because they do not begin like a client's startup message.
type frontend struct {
	header   []byte // of the current message, until it is complete
	left     int    // remaining bytes of the message
	text     []byte // the first bytes of the message
	begun    bool   // the session has started, so each message has a type
	other    bool   // it is a different protocol
	prepared map[string]bool
	pending  bool // a COMMIT was sent, but nothing yet that makes the server answer it
}

// Codes of a client's first messages, which have no type.
const (
	startupCode  = 3 << 16
	requestCodes = 1234<<16 | 5678 // followed by the codes of cancellation, TLS and GSSAPI
)

// read parses the next bytes. at is the offset of a message that commits, -1 if there is no such message. ended reports
// that a COMMIT, in these bytes or earlier, was sent with everything the server needs to answer it.
func (f *frontend) read(sent []byte) (at int, ended bool) {
	at = -1
	begin := 0
	for i := 0; i < len(sent) && !f.other; {
		if f.left == 0 {
			want := 5
			if !f.begun {
				want = 8
			}
			if len(f.header) == 0 {
				begin = i
			}
			n := min(want-len(f.header), len(sent)-i)
			f.header = append(f.header, sent[i:i+n]...)
			i += n
			if len(f.header) < want {
				return at, ended
			}
			f.start()
		} else {
			n := min(f.left, len(sent)-i)
			f.text = append(f.text, sent[i:i+min(n, maxText-len(f.text))]...)
			f.left -= n
			i += n
		}
		if f.left > 0 || f.other {
			continue
		}
		commits, complete := f.message()
		if commits && at < 0 {
			at = begin
		}
		f.pending = f.pending || commits
		if f.pending && complete {
			f.pending, ended = false, true
		}
		f.header, f.text, begin = f.header[:0], f.text[:0], 0
		if i < len(sent) {
			begin = i
		}
	}
	return at, ended
}

// start begins a header.
func (f *frontend) start() {
	if f.begun {
		f.left = int(binary.BigEndian.Uint32(f.header[1:])) - 4
	} else {
		f.left = int(binary.BigEndian.Uint32(f.header)) - 8
		code := binary.BigEndian.Uint32(f.header[4:])
		f.other = code != startupCode && code>>16 != requestCodes>>16
		f.begun = code == startupCode
	}
	f.other = f.other || f.left < 0 || f.left > 1<<30
}

// message reports whether the complete message commits, and whether the server answers after it.
func (f *frontend) message() (commits, answered bool) {
	if len(f.header) != 5 { // a startup message
		return false, false
	}
	switch f.header[0] {
	case 'Q':
		return isCommit(f.text), true
	case 'P':
		name, rest, _ := bytes.Cut(f.text, []byte{0})
		if f.prepared == nil {
			f.prepared = map[string]bool{}
		}
		f.prepared[string(name)] = isCommit(rest)
	case 'B':
		_, rest, _ := bytes.Cut(f.text, []byte{0})
		name, _, _ := bytes.Cut(rest, []byte{0})
		return f.prepared[string(name)], false
	case 'S':
		return false, true
	}
	return false, false
}

// isCommit reports whether a statement commits, or the last of several statements does.
func isCommit(text []byte) bool {
	text, _, _ = bytes.Cut(text, []byte{0})
	statements := strings.Split(strings.TrimRight(strings.ToLower(string(text)), "; \n"), ";")
	last := strings.TrimSpace(statements[len(statements)-1])
	return last == "commit" || last == "end"
}
