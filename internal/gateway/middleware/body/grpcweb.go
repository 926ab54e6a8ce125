package body

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// The content types of gRPC and of gRPC-Web. A suffix such as +proto follows.
const (
	typeGRPC        = "application/grpc"
	typeGRPCWeb     = "application/grpc-web"
	typeGRPCWebText = "application/grpc-web-text"
)

// NewGRPCWeb translates gRPC-Web, which browsers can send, to gRPC (the protocol of
// gRPC-Web, PROTOCOL-WEB.md): trailers become the last part of the body, and the text
// variant is in base64. Pages of the configured origins may use it.
func NewGRPCWeb(_ *base.Builder, v *gateway.GRPCWeb) (base.Func, error) {
	for _, origin := range v.AllowOrigins {
		if err := base.CheckHeader("Origin", origin); err != nil {
			return nil, err
		}
	}
	allowed := func(origin string) bool {
		return origin != "" && (slices.Contains(v.AllowOrigins, "*") || slices.Contains(v.AllowOrigins, origin))
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			origin := r.Header.Get("Origin")
			switch {
			case isGRPCWebPreflight(r) && allowed(origin):
				answerPreflight(w, r, origin)
			case r.Method == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"), typeGRPCWeb):
				if allowed(origin) {
					base.AddVary(w.Header(), "Origin")
					w.Header().Set("Access-Control-Allow-Origin", origin)
					w.Header().Set("Access-Control-Expose-Headers", "*, Grpc-Status, Grpc-Message, "+
						"Grpc-Status-Details-Bin")
				}
				translate(w, r, next)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}, nil
}

// grpcWebHeader matches the header of gRPC-Web in a list of header names.
var grpcWebHeader = regexp.MustCompile(`(?i)(^|[,\s])x-grpc-web([,\s]|$)`)

func isGRPCWebPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") == http.MethodPost &&
		grpcWebHeader.MatchString(r.Header.Get("Access-Control-Request-Headers"))
}

func answerPreflight(w http.ResponseWriter, r *http.Request, origin string) {
	h := w.Header()
	base.AddVary(h, "Origin")
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Methods", http.MethodPost)
	h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// translate calls the next handler with a request of gRPC. The client's own request stays as it is: its version
// decides how the response is framed.
func translate(w http.ResponseWriter, client *http.Request, next http.Handler) {
	r := new(http.Request)
	*r = *client
	kind := r.Header.Get("Content-Type")
	out := &grpcWebWriter{ResponseWriter: w, header: w.Header().Clone(), kind: typeGRPCWeb}
	suffix, text := strings.CutPrefix(kind, typeGRPCWebText)
	if text {
		out.kind, out.text = typeGRPCWebText, true
		r.Body = struct {
			io.Reader
			io.Closer
		}{base64.NewDecoder(base64.StdEncoding, r.Body), r.Body}
		r.ContentLength = -1
	} else {
		suffix = strings.TrimPrefix(kind, typeGRPCWeb)
	}
	r.Header.Set("Content-Type", typeGRPC+suffix)
	r.Header.Set("Te", "trailers")
	r.Header.Del("Content-Length")
	r.Header.Del("Accept-Encoding")
	// gRPC needs HTTP/2: servers check this.
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	next.ServeHTTP(out, r)
	out.finish()
}

// grpcWebWriter writes the trailers of a response at the end of its body.
type grpcWebWriter struct {
	http.ResponseWriter
	header http.Header
	kind   string
	text   bool
	// rest are bytes that do not fill a group of base64 yet.
	rest []byte
	done bool
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *grpcWebWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Header returns the header and, after the head is written, the trailers.
func (w *grpcWebWriter) Header() http.Header { return w.header }

// WriteHeader writes the head without the trailers' names.
func (w *grpcWebWriter) WriteHeader(status int) {
	if w.done {
		return
	}
	h := w.ResponseWriter.Header()
	clear(h) // of the fields of an interim response
	trailers := w.trailerNames()
	for name, values := range w.header {
		if !strings.HasPrefix(name, http.TrailerPrefix) && !slices.Contains(trailers, name) && name != "Trailer" {
			h[name] = values
		}
	}
	if suffix, ok := strings.CutPrefix(h.Get("Content-Type"), typeGRPC); ok {
		h.Set("Content-Type", w.kind+suffix)
	}
	h.Del("Content-Length")
	w.done = base.IsFinal(status)
	w.ResponseWriter.WriteHeader(status)
}

// trailerNames returns the names that the header Trailer announces.
func (w *grpcWebWriter) trailerNames() (names []string) {
	for name := range strings.SplitSeq(strings.Join(w.header["Trailer"], ","), ",") {
		names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
	}
	return names
}

func (w *grpcWebWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !w.text {
		return w.ResponseWriter.Write(p)
	}
	w.rest = append(w.rest, p...)
	whole := len(w.rest) - len(w.rest)%3
	if err := w.encode(whole); err != nil {
		return 0, err
	}
	return len(p), nil
}

// encode writes the first n bytes of the rest in base64.
func (w *grpcWebWriter) encode(n int) error {
	_, err := io.WriteString(w.ResponseWriter, base64.StdEncoding.EncodeToString(w.rest[:n]))
	w.rest = w.rest[:copy(w.rest, w.rest[n:])]
	return err
}

// FlushError sends what was written to the client, with padding.
func (w *grpcWebWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if err := w.encode(len(w.rest)); err != nil {
		return err
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is FlushError for callers that test for http.Flusher.
func (w *grpcWebWriter) Flush() { _ = w.FlushError() }

// finish writes the trailers as a frame: 0x80, the length, and lines of header fields.
func (w *grpcWebWriter) finish() {
	trailers := map[string][]string{}
	for _, name := range w.trailerNames() {
		if values := w.header[name]; len(values) > 0 {
			trailers[name] = values
		}
	}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailers[name] = values
		}
	}
	w.WriteHeader(http.StatusOK)
	if len(trailers) > 0 {
		var text []byte
		for _, name := range slices.Sorted(maps.Keys(trailers)) {
			for _, value := range trailers[name] {
				text = append(text, strings.ToLower(name)+": "+value+"\r\n"...)
			}
		}
		frame := binary.BigEndian.AppendUint32([]byte{0x80}, uint32(len(text)))
		_, _ = w.Write(append(frame, text...)) // An error is the client's connection's.
	}
	_ = w.encode(len(w.rest))
}
