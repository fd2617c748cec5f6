package strictjson

// Scanner reads JSON in the form that programs write: without spaces, with ASCII text without escapes, and with
// non-negative integers. A text that it refuses may still be JSON, for a slower parser to decide. It does not detect
// duplicate members.
type Scanner struct{ Rest []byte } // the unread part

// Skip reads exactly the given token.
func (s *Scanner) Skip(token string) bool {
	if len(s.Rest) < len(token) || string(s.Rest[:len(token)]) != token {
		return false
	}
	s.Rest = s.Rest[len(token):]
	return true
}

// Object calls member with each name, and member reads the value.
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

// Number reads a non-negative integer without leading zeros, of at most 16 digits.
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
