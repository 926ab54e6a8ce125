package health

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"fairlead/internal/model"
)

// grpcCheck calls a server's health service (grpc.health.v1.Health/Check). gRPC is
// a POST over HTTP/2. The check writes and reads the frames itself, because the
// client of net/http writes a line to the log for every unknown frame, as many as
// a server sends. The client of grpc-go needs a hundred times as long for a connection
// with one request, and hides the errors of connections and HTTP behind its own status.
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
type grpcCheck struct {
	question []byte
	host     string
	tls      *secure
}

var grpcType = Type{Name: model.CheckGRPC, Settings: []string{"tls", "service"}, overlaps: always, checker: newGRPC}

func newGRPC(c model.Check, m Means) (Checker, error) {
	g := grpcCheck{question: healthQuestion(c.Service), host: c.Host}
	if c.TLS {
		g.tls = newSecure(c, m)
	}
	return g, nil
}

// healthQuestion returns a HealthCheckRequest after a gRPC prefix: one byte for no compression, four for the length.
func healthQuestion(service string) []byte {
	// Only a name that is not UTF-8 fails.
	message, _ := proto.Marshal(&grpc_health_v1.HealthCheckRequest{Service: service})
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// Check implements Checker.
func (g grpcCheck) Check(ctx context.Context, at Target) Result {
	raw, err := open(ctx, at, "tcp")
	if err != nil {
		return broken(ctx, "connect", err)
	}
	defer raw.Close()
	conn, scheme := net.Conn(raw), "http"
	if g.tls != nil {
		scheme = "https"
		if conn, err = g.tls.client(ctx, raw, http2.NextProtoTLS); err != nil {
			return broken(ctx, "TLS", err)
		}
	}
	s := newStream(conn)
	if err := s.ask(scheme, cmp.Or(g.host, at.Real.String()), g.question); err != nil {
		return broken(ctx, "ask", err)
	}
	for range mostFrames {
		done, err := s.read()
		if err != nil {
			return broken(ctx, "read", err)
		}
		if done {
			return s.judge()
		}
	}
	return failed("read: the answer has no end")
}

// mostFrames limits the frames of an answer. About a dozen are usual.
const mostFrames = 100

// stream is the only stream of a connection, with the received answer.
type stream struct {
	out    *bufio.Writer
	frames *http2.Framer
	// status is the HTTP status, code the gRPC status.
	status, code string
	body         []byte
}

func newStream(conn net.Conn) *stream {
	s := &stream{out: bufio.NewWriter(conn)}
	s.frames = http2.NewFramer(s.out, bufio.NewReader(conn))
	s.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	s.frames.MaxHeaderListSize = 16 << 10
	s.frames.SetMaxReadFrameSize(16 << 10)
	return s
}

// ask sends the request. The request and the answer fit into the initial window of
// a connection.
func (s *stream) ask(scheme, host string, question []byte) error {
	var block bytes.Buffer
	head := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", scheme}, {":path", "/grpc.health.v1.Health/Check"},
		{":authority", host},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"user-agent", "fairlead"}} {
		if err := head.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	_, err := s.out.WriteString(http2.ClientPreface)
	return errors.Join(err,
		s.frames.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		s.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}),
		s.frames.WriteData(1, true, question),
		s.out.Flush())
}

// read reads a frame, and reports whether the answer is complete. It ignores frames
// of unknown types (RFC 9113, section 4.1).
func (s *stream) read() (done bool, err error) {
	frame, err := s.frames.ReadFrame()
	if err != nil {
		return false, err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return false, errors.Join(s.frames.WriteSettingsAck(), s.out.Flush())
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return false, errors.Join(s.frames.WritePing(true, f.Data), s.out.Flush())
		}
	case *http2.GoAwayFrame:
		if f.LastStreamID < 1 {
			return false, fmt.Errorf("the server sent GOAWAY: %v", f.ErrCode)
		}
	case *http2.RSTStreamFrame:
		return false, fmt.Errorf("the server reset the stream: %v", f.ErrCode)
	case *http2.MetaHeadersFrame:
		for _, h := range f.Fields {
			switch h.Name {
			case ":status":
				s.status = h.Value
			case "grpc-status":
				s.code = h.Value
			}
		}
		return f.StreamEnded(), nil
	case *http2.DataFrame:
		s.body = append(s.body, f.Data()...)
		return f.StreamEnded(), nil
	}
	return false, nil
}

// judge returns the result from the answer. The gRPC status is in the trailer, or
// in the header if there is no message.
func (s *stream) judge() Result {
	if s.status != "200" {
		return failed("HTTP status %s, want 200", s.status)
	}
	switch s.code {
	case "0":
	case "":
		return failed("no gRPC status: is it a gRPC server?")
	case "5":
		return failed("gRPC status 5: the server does not know the service")
	case "12":
		return failed("gRPC status 12: the server has no health service")
	default:
		return failed("gRPC status %s", s.code)
	}
	status, err := healthAnswer(s.body)
	switch {
	case err != nil:
		return failed("read: %v", err)
	case status != 1:
		return failed("health status %d, want 1 (serving)", status)
	}
	return passed("serving")
}

// healthAnswer returns the status in a HealthCheckResponse, 0 (unknown) if it has none.
func healthAnswer(body []byte) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	if len(body) < 5 || uint64(len(body)-5) < uint64(binary.BigEndian.Uint32(body[1:])) {
		return 0, errors.New("the message is cut short")
	}
	if body[0] != 0 {
		return 0, errors.New("the message is compressed, although the request did not allow that")
	}
	var answer grpc_health_v1.HealthCheckResponse
	if proto.Unmarshal(body[5:][:binary.BigEndian.Uint32(body[1:])], &answer) != nil {
		return 0, errors.New("the message is cut short or damaged")
	}
	return answer.Status, nil
}
