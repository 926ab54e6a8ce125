package wire

import (
	"bytes"
	"io"
)

// Limits of what a sender may add to chunks (CVE-2023-39326): the length of a line with a size and its
// extensions, and the sum of lines in excess of a share of the data.
const (
	MaxChunkLine   = 4 << 10
	maxChunkExcess = 16 << 10
)

// Chunked decodes the chunked transfer coding (RFC 9112 7.1). Lines must end with CRLF.
type Chunked struct {
	in *Input
	// strict: extensions must follow the grammar. Some servers pad sizes with spaces.
	Strict bool
	// Left is what remains of the current chunk's data.
	Left int64
	// inside is true after the first chunk's size was read.
	inside  bool
	done    bool
	excess  int64
	Trailer []Field
}

// Reset begins to decode a body from the buffer.
func (c *Chunked) Reset(in *Input) {
	*c = Chunked{in: in, Trailer: c.Trailer[:0]}
}

// Next returns data that is in the buffer; the caller calls Used for what it has consumed. After the
// last chunk and the trailer it returns io.EOF.
func (c *Chunked) Next() ([]byte, error) {
	for c.Left == 0 {
		if c.done {
			return nil, io.EOF
		}
		if err := c.begin(); err != nil {
			return nil, err
		}
	}
	if c.in.Buffered() == 0 {
		if err := c.in.Fill(); err != nil {
			return nil, Unexpected(err)
		}
	}
	b := c.in.Bytes()
	if int64(len(b)) > c.Left {
		b = b[:c.Left]
	}
	return b, nil
}

// Used drops n bytes of what Next has returned.
func (c *Chunked) Used(n int) {
	c.Left -= int64(n)
	c.in.Consume(n)
}

// Begin reads the end of the previous chunk and the size of the next one.
func (c *Chunked) begin() error {
	if c.inside {
		line, err := c.line(2)
		if err != nil {
			return err
		}
		if len(line) != 0 {
			return Malformed("chunk is longer than its size")
		}
		c.in.Consume(2)
	}
	line, err := c.line(MaxChunkLine)
	if err != nil {
		return err
	}
	n, extensions, err := parseChunkSize(line)
	if err != nil {
		return err
	}
	if c.Strict && !validExtensions(extensions) {
		return Malformed("chunk extension %.40q", line)
	}
	c.excess = max(0, c.excess+int64(len(line))+2-16-2*n)
	if c.excess > maxChunkExcess {
		return Malformed("chunks have more extensions than data")
	}
	c.in.Consume(len(line) + 2)
	c.Left, c.inside = n, true
	if n == 0 {
		return c.end()
	}
	return nil
}

// line returns the next line without CRLF and does not consume it. With CRLF it has at most limit bytes.
func (c *Chunked) line(limit int) ([]byte, error) {
	for {
		b := c.in.Bytes()
		n := bytes.IndexByte(b, '\n')
		switch {
		case n >= limit || n < 0 && len(b) >= limit:
			return nil, Malformed("line of a chunk is too long")
		case n == 0 || n > 0 && b[n-1] != '\r':
			return nil, Malformed("line of a chunk ends without CR")
		case n > 0:
			return b[:n-1], nil
		}
		if err := c.in.Fill(); err != nil {
			return nil, Unexpected(err)
		}
	}
}

// End reads the trailer.
func (c *Chunked) end() error {
	searched := 0
	for {
		b := c.in.Bytes()
		if len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
			c.in.Consume(2)
			c.done = true
			return nil
		}
		if n := HeadEnd(b, searched); n > 0 {
			text := string(b[:n])
			if bytes.Count(b[:n], []byte("\n")) != bytes.Count(b[:n], []byte("\r\n")) {
				return Malformed("trailer has lines without CR")
			}
			c.in.Consume(n)
			var err error
			c.done = true
			c.Trailer, err = ParseFields(c.Trailer[:0], text)
			return err
		}
		if len(b) > 0 && b[0] == '\n' {
			return Malformed("last chunk ends without CR")
		}
		searched = max(0, len(b)-2)
		if err := c.in.Fill(); err != nil {
			return Unexpected(err)
		}
	}
}

// parseChunkSize parses a chunk's size, and returns what follows it. Extensions are ignored.
func parseChunkSize(line []byte) (size int64, extensions []byte, err error) {
	var n int64
	i := 0
	for ; i < len(line); i++ {
		d, ok := hexDigit(line[i])
		if !ok {
			break
		}
		if i >= 15 {
			return 0, nil, Malformed("chunk size is too large")
		}
		n = n<<4 | int64(d)
	}
	rest := bytes.TrimRight(line[i:], " \t")
	if i == 0 || len(rest) > 0 && rest[0] != ';' {
		return 0, nil, Malformed("chunk size %.40q", line)
	}
	for _, b := range rest {
		if Class[b]&isValue == 0 {
			return 0, nil, Malformed("chunk extension has control characters")
		}
	}
	return n, line[i:], nil
}

func hexDigit(b byte) (byte, bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}
