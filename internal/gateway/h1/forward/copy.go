package forward

import (
	"io"
	"net/http"

	"fairlead/internal/gateway/h1/wire"
)

// write writes a part of the response's body.
func (x *exchange) write(p []byte) *wire.Error {
	x.unflushed = x.flusher != nil
	if _, err := x.w.Write(p); err != nil {
		return x.writeFailed(err)
	}
	return nil
}

func (x *exchange) writeFailed(err error) *wire.Error {
	return &wire.Error{Op: "write response", Err: err, Sent: true, Started: true, Client: true}
}

func (x *exchange) readFailed(err error) *wire.Error {
	return &wire.Error{Op: "read response body", Err: wire.Unexpected(err), Sent: true, Started: true}
}

// copyLength copies a body of n bytes. A long one is spliced if both sides are TCP connections.
func (x *exchange) copyLength(n int64) *wire.Error {
	u := x.u
	for n > 0 {
		if u.Buffered() == 0 {
			if from, ok := x.w.(io.ReaderFrom); ok && u.tcp != nil && n >= wire.BufferSize {
				return x.splice(from, n)
			}
			if err := u.Fill(); err != nil {
				return x.readFailed(err)
			}
		}
		b := u.Bytes()
		if int64(len(b)) > n {
			b = b[:n]
		}
		if err := x.write(b); err != nil {
			return err
		}
		u.Consume(len(b))
		n -= int64(len(b))
	}
	return nil
}

// splice copies n bytes with ReadFrom. The writer recognises the TCP connection in the LimitedReader.
func (x *exchange) splice(to io.ReaderFrom, n int64) *wire.Error {
	limited := io.LimitedReader{R: x.u.tcp}
	x.flushNow()
	for n > 0 {
		step := min(n, wire.SpliceStep)
		limited.N = step
		moved, err := to.ReadFrom(&limited)
		n -= moved
		switch {
		case err != nil && wire.IsReset(x.u.probe):
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
func (x *exchange) copyToEOF() *wire.Error {
	for {
		if x.u.Buffered() == 0 {
			if err := x.u.Fill(); err == io.EOF {
				return nil
			} else if err != nil {
				return x.readFailed(err)
			}
		}
		b := x.u.Bytes()
		if err := x.write(b); err != nil {
			return err
		}
		x.u.Consume(len(b))
	}
}

// copyChunked copies a chunked body and its trailer.
func (x *exchange) copyChunked() *wire.Error {
	d := &x.decoder
	d.Reset(&x.u.Input)
	for {
		b, err := d.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return x.readFailed(err)
		}
		if failed := x.write(b); failed != nil {
			return failed
		}
		d.Used(len(b))
	}
	if len(d.Trailer) > 0 {
		x.copyTrailer(d.Trailer)
	}
	return nil
}

// copyTrailer sets the trailer fields in the two ways of net/http: announced ones by their names,
// others with http.TrailerPrefix.
func (x *exchange) copyTrailer(trailer []wire.Field) {
	h := x.w.Header()
	announced := h["Trailer"]
	for _, f := range trailer {
		switch {
		case !wire.TrailerAllowed(f.Key):
		case wire.Named(announced, f.Key):
			h[f.Key] = append(h[f.Key], f.Value)
		default:
			key := http.TrailerPrefix + f.Key
			h[key] = append(h[key], f.Value)
		}
	}
}
