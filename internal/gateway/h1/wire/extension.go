package wire

import "bytes"

// validExtensions returns true if chunk extensions follow the grammar: names with or without a value, each
// behind a semicolon (RFC 9112 7.1.1).
func validExtensions(b []byte) bool {
	for len(b) > 0 {
		var ok bool
		if b, ok = cutMark(b, ';'); !ok {
			return false
		}
		if b, ok = cutToken(b); !ok {
			return false
		}
		value, has := cutMark(b, '=')
		if !has {
			continue
		}
		if b, ok = cutQuoted(value); ok {
			continue
		}
		if b, ok = cutToken(value); !ok {
			return false
		}
	}
	return true
}

// cutMark cuts a mark off, with the white space around it.
func cutMark(b []byte, mark byte) ([]byte, bool) {
	rest := bytes.TrimLeft(b, " \t")
	if len(rest) == 0 || rest[0] != mark {
		return b, false
	}
	return bytes.TrimLeft(rest[1:], " \t"), true
}

// cutToken cuts a token off (RFC 9110 5.6.2).
func cutToken(b []byte) ([]byte, bool) {
	n := 0
	for n < len(b) && Class[b[n]]&IsToken != 0 {
		n++
	}
	return b[n:], n > 0
}

// cutQuoted cuts a quoted string off (RFC 9110 5.6.4).
func cutQuoted(b []byte) ([]byte, bool) {
	if len(b) == 0 || b[0] != '"' {
		return b, false
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '"':
			return b[i+1:], true
		case '\\':
			i++
		}
	}
	return b, false
}
