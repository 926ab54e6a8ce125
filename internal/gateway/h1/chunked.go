package h1

import (
	"bytes"
	"io"
)

// Limits of what a sender may add to chunks (CVE-2023-39326): the length of a line with a size and its
// extensions, and the sum of lines in excess of a share of the data.
const (
	maxChunkLine   = 4 << 10
	maxChunkExcess = 16 << 10
)

// chunked decodes the chunked transfer coding (RFC 9112 7.1). Lines must end with CRLF.
type chunked struct {
	in *input
	// strict: extensions must follow the grammar. Some servers pad sizes with spaces.
	strict bool
	// left is what remains of the current chunk's data.
	left int64
	// inside is true after the first chunk's size was read.
	inside  bool
	done    bool
	excess  int64
	trailer []field
}

func (c *chunked) reset(in *input) {
	*c = chunked{in: in, trailer: c.trailer[:0]}
}

// next returns data that is in the buffer; the caller calls used for what it has consumed. After the
// last chunk and the trailer it returns io.EOF.
func (c *chunked) next() ([]byte, error) {
	for c.left == 0 {
		if c.done {
			return nil, io.EOF
		}
		if err := c.begin(); err != nil {
			return nil, err
		}
	}
	if c.in.buffered() == 0 {
		if err := c.in.fill(); err != nil {
			return nil, unexpected(err)
		}
	}
	b := c.in.bytes()
	if int64(len(b)) > c.left {
		b = b[:c.left]
	}
	return b, nil
}

func (c *chunked) used(n int) {
	c.left -= int64(n)
	c.in.consume(n)
}

// begin reads the end of the previous chunk and the size of the next one.
func (c *chunked) begin() error {
	if c.inside {
		line, err := c.line(2)
		if err != nil {
			return err
		}
		if len(line) != 0 {
			return malformed("chunk is longer than its size")
		}
		c.in.consume(2)
	}
	line, err := c.line(maxChunkLine)
	if err != nil {
		return err
	}
	n, extensions, err := parseChunkSize(line)
	if err != nil {
		return err
	}
	if c.strict && !validExtensions(extensions) {
		return malformed("chunk extension %.40q", line)
	}
	c.excess = max(0, c.excess+int64(len(line))+2-16-2*n)
	if c.excess > maxChunkExcess {
		return malformed("chunks have more extensions than data")
	}
	c.in.consume(len(line) + 2)
	c.left, c.inside = n, true
	if n == 0 {
		return c.end()
	}
	return nil
}

// line returns the next line without CRLF and does not consume it. With CRLF it has at most limit bytes.
func (c *chunked) line(limit int) ([]byte, error) {
	for {
		b := c.in.bytes()
		n := bytes.IndexByte(b, '\n')
		switch {
		case n >= limit || n < 0 && len(b) >= limit:
			return nil, malformed("line of a chunk is too long")
		case n == 0 || n > 0 && b[n-1] != '\r':
			return nil, malformed("line of a chunk ends without CR")
		case n > 0:
			return b[:n-1], nil
		}
		if err := c.in.fill(); err != nil {
			return nil, unexpected(err)
		}
	}
}

// end reads the trailer.
func (c *chunked) end() error {
	searched := 0
	for {
		b := c.in.bytes()
		if len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
			c.in.consume(2)
			c.done = true
			return nil
		}
		if n := headEnd(b, searched); n > 0 {
			text := string(b[:n])
			if bytes.Count(b[:n], []byte("\n")) != bytes.Count(b[:n], []byte("\r\n")) {
				return malformed("trailer has lines without CR")
			}
			c.in.consume(n)
			var err error
			c.done = true
			c.trailer, err = parseFields(c.trailer[:0], text)
			return err
		}
		if len(b) > 0 && b[0] == '\n' {
			return malformed("last chunk ends without CR")
		}
		searched = max(0, len(b)-2)
		if err := c.in.fill(); err != nil {
			return unexpected(err)
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
			return 0, nil, malformed("chunk size is too large")
		}
		n = n<<4 | int64(d)
	}
	rest := bytes.TrimRight(line[i:], " \t")
	if i == 0 || len(rest) > 0 && rest[0] != ';' {
		return 0, nil, malformed("chunk size %.40q", line)
	}
	for _, b := range rest {
		if class[b]&isValue == 0 {
			return 0, nil, malformed("chunk extension has control characters")
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
