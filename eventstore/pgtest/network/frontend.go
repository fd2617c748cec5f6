package network

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// mostText is how much of a message is looked at: statements that end a transaction are short.
const mostText = 256

// frontend follows the messages that a client of PostgreSQL sends, whichever pieces they come in. What is not of that
// protocol never looks like a COMMIT: its first bytes are not those of a client that starts.
type frontend struct {
	header   []byte // of the message that has begun, until it is complete
	left     int    // bytes of the message that are still to come
	text     []byte // the first bytes of the message
	begun    bool   // the client has started a session, and each message has a type
	other    bool   // it is another protocol
	prepared map[string]bool
	pending  bool // a COMMIT was sent, and nothing that has the server answer it
}

// Codes of the first messages of a client, which have no type.
const (
	startupCode  = 3 << 16
	requestCodes = 1234<<16 | 5678 // and after it those of TLS, GSSAPI and of cancelling
)

// read takes the next bytes. at is where a message begins that commits, -1 for none; ended says that a COMMIT, of these
// bytes or of earlier ones, was sent with all that the server needs to answer it.
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
			f.text = append(f.text, sent[i:i+min(n, mostText-len(f.text))]...)
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

// start reads a header.
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

// message says whether the complete message commits, and whether the server answers after it.
func (f *frontend) message() (commits, answered bool) {
	if len(f.header) != 5 { // of a start
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

// isCommit is true of a statement that commits, and of several whose last one does.
func isCommit(text []byte) bool {
	text, _, _ = bytes.Cut(text, []byte{0})
	statements := strings.Split(strings.TrimRight(strings.ToLower(string(text)), "; \n"), ";")
	last := strings.TrimSpace(statements[len(statements)-1])
	return last == "commit" || last == "end"
}
