package strictjson

// Scanner reads JSON as programs write it: without spaces, of ASCII text without escapes, with integers from 0 on. What
// it refuses may be JSON all the same, for a slower reader to judge. It judges no duplicate members.
type Scanner struct{ Rest []byte } // the unread part

// Skip reads a token, as it stands.
func (s *Scanner) Skip(token string) bool {
	if len(s.Rest) < len(token) || string(s.Rest[:len(token)]) != token {
		return false
	}
	s.Rest = s.Rest[len(token):]
	return true
}

// Object calls member with each name, to read the value.
func (s *Scanner) Object(member func(name []byte) bool) bool {
	if !s.Skip("{") {
		return false
	}
	for {
		name, ok := s.quoted()
		if !ok || !s.Skip(":") || !member(name) {
			return false
		}
		if !s.Skip(",") {
			return s.Skip("}")
		}
	}
}

// Value reads a text, a number, null or true.
func (s *Scanner) Value() bool {
	if _, ok := s.quoted(); ok {
		return true
	}
	if _, ok := s.Number(); ok {
		return true
	}
	return s.Skip("null") || s.Skip("true")
}

// Text reads a text.
func (s *Scanner) Text() (string, bool) {
	text, ok := s.quoted()
	return string(text), ok
}

func (s *Scanner) quoted() (text []byte, ok bool) {
	if len(s.Rest) == 0 || s.Rest[0] != '"' {
		return nil, false
	}
	for i, c := range s.Rest[1:] {
		switch {
		case c == '"':
			text, s.Rest = s.Rest[1:1+i], s.Rest[2+i:]
			return text, true
		case c < ' ' || c > '~' || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

// Number reads an integer from 0 on, as it is written in one way, of at most 16 digits.
func (s *Scanner) Number() (n int64, ok bool) {
	digits := 0
	for ; digits < len(s.Rest) && s.Rest[digits] >= '0' && s.Rest[digits] <= '9'; digits++ {
		n = 10*n + int64(s.Rest[digits]-'0')
	}
	if digits == 0 || digits > 16 || digits > 1 && s.Rest[0] == '0' {
		return 0, false
	}
	s.Rest = s.Rest[digits:]
	return n, true
}
