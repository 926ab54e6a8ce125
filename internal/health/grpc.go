package health

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"fairlead/internal/model"
)

// grpcCheck asks a server's health service (grpc.health.v1.Health/Check). gRPC
// is a POST over HTTP/2, so no library is needed but net/http.
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
type grpcCheck struct {
	question []byte
	host     string
	tls      *secure
}

func newGRPC(c model.Check, m Means) (Checker, error) {
	g := grpcCheck{question: healthQuestion(c.Service), host: c.Host}
	if c.TLS {
		g.tls = newSecure(c, m)
	}
	return g, nil
}

// healthQuestion is a HealthCheckRequest, whose first field is the service's
// name, behind a gRPC prefix: one byte for no compression, four for the length.
func healthQuestion(service string) []byte {
	var message []byte
	if service != "" {
		message = append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(service))), service...)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// Check is Checker's.
func (g grpcCheck) Check(ctx context.Context, at Target) Result {
	conn, err := open(ctx, at, "tcp")
	if err != nil {
		return broken(ctx, "connect", err)
	}
	defer conn.Close()
	transport := &http.Transport{Protocols: new(http.Protocols), MaxResponseHeaderBytes: answerLimit, DisableCompression: true,
		DialContext: once(conn)}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at.Real.String()+"/grpc.health.v1.Health/Check", bytes.NewReader(g.question))
	if err != nil {
		return failed("%v", err)
	}
	request.Host = g.host
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {"fairlead"}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	if g.tls != nil {
		request.URL.Scheme = "https"
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP2(true)
		transport.TLSClientConfig = g.tls.config.Clone()
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return broken(ctx, "ask", err)
	}
	defer answer.Body.Close()
	return g.judge(ctx, answer)
}

// once returns a dial function that gives the connection, and only once.
func once(conn net.Conn) DialFunc {
	left := make(chan net.Conn, 1)
	left <- conn
	return func(context.Context, string, string) (net.Conn, error) {
		select {
		case c := <-left:
			return c, nil
		default:
			return nil, errors.New("the server ended the connection")
		}
	}
}

// judge reads the answer: a status in its trailer, or in its head where there
// is no message.
func (g grpcCheck) judge(ctx context.Context, answer *http.Response) Result {
	if answer.StatusCode != http.StatusOK {
		return failed("HTTP status %d, want 200", answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, answerLimit))
	if err != nil {
		return broken(ctx, "read", err)
	}
	code := answer.Trailer.Get("Grpc-Status")
	if code == "" {
		code = answer.Header.Get("Grpc-Status")
	}
	switch n, err := strconv.Atoi(code); {
	case err != nil:
		return failed("no gRPC status: is it a gRPC server?")
	case n == 5:
		return failed("gRPC status 5: the server knows no such service")
	case n == 12:
		return failed("gRPC status 12: the server has no health service")
	case n != 0:
		return failed("gRPC status %d", n)
	}
	status, err := healthAnswer(body)
	switch {
	case err != nil:
		return failed("read: %v", err)
	case status != 1:
		return failed("health status %d, want 1 (serving)", status)
	}
	return passed("serving")
}

// healthAnswer returns the status in a HealthCheckResponse: its first field, 0
// (unknown) where that is left out.
func healthAnswer(body []byte) (status uint64, err error) {
	short := errors.New("the message is cut short")
	if len(body) < 5 || uint64(len(body)-5) < uint64(binary.BigEndian.Uint32(body[1:])) {
		return 0, short
	}
	if body[0] != 0 {
		return 0, errors.New("the message is compressed, which nobody has asked for")
	}
	for message := body[5:][:binary.BigEndian.Uint32(body[1:])]; len(message) > 0; {
		tag, n := binary.Uvarint(message)
		value, m := binary.Uvarint(message[max(0, n):])
		if n <= 0 || m <= 0 {
			return 0, short
		}
		message = message[n+m:]
		switch tag & 7 {
		case 0: // a varint
			if tag>>3 == 1 {
				status = value
			}
		case 2: // bytes
			if value > uint64(len(message)) {
				return 0, short
			}
			message = message[value:]
		default:
			return 0, fmt.Errorf("the message has a field of type %d", tag&7)
		}
	}
	return status, nil
}
