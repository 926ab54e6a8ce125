package h1

import (
	"io"
	"net/http"
)

// spliceStep is how much of a long body moves between two reports of progress.
const spliceStep = 256 << 10

// write writes a part of the response's body.
func (x *exchange) write(p []byte) *Error {
	x.unflushed = x.flusher != nil
	if _, err := x.w.Write(p); err != nil {
		return x.writeFailed(err)
	}
	return nil
}

func (x *exchange) writeFailed(err error) *Error {
	return &Error{Op: "write response", Err: err, Sent: true, Started: true, Client: true}
}

func (x *exchange) readFailed(err error) *Error {
	return &Error{Op: "read response body", Err: unexpected(err), Sent: true, Started: true}
}

// copyLength copies a body of n bytes. A long one is spliced if both sides are TCP connections.
func (x *exchange) copyLength(n int64) *Error {
	u := x.u
	for n > 0 {
		if u.buffered() == 0 {
			if from, ok := x.w.(io.ReaderFrom); ok && u.tcp != nil && n >= bufferSize {
				return x.splice(from, n)
			}
			if err := u.fill(); err != nil {
				return x.readFailed(err)
			}
		}
		b := u.bytes()
		if int64(len(b)) > n {
			b = b[:n]
		}
		if err := x.write(b); err != nil {
			return err
		}
		u.consume(len(b))
		n -= int64(len(b))
	}
	return nil
}

// splice copies n bytes with ReadFrom. The writer recognises the TCP connection in the LimitedReader.
func (x *exchange) splice(to io.ReaderFrom, n int64) *Error {
	limited := io.LimitedReader{R: x.u.tcp}
	x.flushNow()
	for n > 0 {
		step := min(n, spliceStep)
		limited.N = step
		moved, err := to.ReadFrom(&limited)
		n -= moved
		switch {
		case err != nil && isReset(x.u.probe):
			return x.readFailed(err)
		case err != nil:
			return x.writeFailed(err)
		case moved < step:
			return x.readFailed(io.ErrUnexpectedEOF)
		}
	}
	return nil
}

// copyToEOF copies a body that ends with the connection.
func (x *exchange) copyToEOF() *Error {
	for {
		if x.u.buffered() == 0 {
			if err := x.u.fill(); err == io.EOF {
				return nil
			} else if err != nil {
				return x.readFailed(err)
			}
		}
		b := x.u.bytes()
		if err := x.write(b); err != nil {
			return err
		}
		x.u.consume(len(b))
	}
}

// copyChunked copies a chunked body and its trailer.
func (x *exchange) copyChunked() *Error {
	d := &x.decoder
	d.reset(&x.u.input)
	for {
		b, err := d.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return x.readFailed(err)
		}
		if failed := x.write(b); failed != nil {
			return failed
		}
		d.used(len(b))
	}
	if len(d.trailer) > 0 {
		x.copyTrailer(d.trailer)
	}
	return nil
}

// copyTrailer sets the trailer fields in the two ways of net/http: announced ones by their names,
// others with http.TrailerPrefix.
func (x *exchange) copyTrailer(trailer []field) {
	h := x.w.Header()
	announced := h["Trailer"]
	for _, f := range trailer {
		switch {
		case !trailerAllowed(f.key):
		case named(announced, f.key):
			h[f.key] = append(h[f.key], f.value)
		default:
			key := http.TrailerPrefix + f.key
			h[key] = append(h[key], f.value)
		}
	}
}
