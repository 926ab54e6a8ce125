package middleware_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

// grpcServer answers as a gRPC server behind a proxy does: with announced and with other
// trailers.
func grpcServer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.Header().Set("Trailer", "Grpc-Status")
	w.Header().Set("X-Proto", r.Proto+" "+r.Header.Get("Te"))
	w.WriteHeader(200)
	echo().ServeHTTP(w, r)
	_ = http.NewResponseController(w).Flush()
	fmt.Fprint(w, "!")
	w.Header().Set("Grpc-Status", "0")
	w.Header().Set(http.TrailerPrefix+"Grpc-Message", "fine")
}

func TestGRPCWeb(t *testing.T) {
	value := gateway.GRPCWeb{AllowOrigins: []string{"https://a.example"}}
	server := serve(t, build(t, gateway.Middleware{GRPCWeb: &value}, middleware.Deps{})(http.HandlerFunc(grpcServer)))
	trailer := "grpc-message: fine\r\ngrpc-status: 0\r\n"
	frame := "\x80\x00\x00\x00" + string(rune(len(trailer))) + trailer
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	kind := func(text string) map[string]string {
		return map[string]string{"Content-Type": text, "Origin": "https://a.example"}
	}
	for _, r := range []request{
		{name: "binary", method: "POST", body: "data", header: kind("application/grpc-web+proto"),
			want: strings.TrimSpace("POST / data!" + frame),
			wantHeader: map[string]string{"Content-Type": "application/grpc-web+proto", "X-Proto": "HTTP/2.0 trailers",
				"Access-Control-Allow-Origin": "https://a.example", "Vary": "Origin", "Grpc-Status": ""}},
		{name: "text", method: "POST", body: encode("data"), header: kind("application/grpc-web-text"),
			want:       encode("POST / data") + encode("!"+frame),
			wantHeader: map[string]string{"Content-Type": "application/grpc-web-text"}},
		{name: "broken text", method: "POST", body: "####", header: kind("application/grpc-web-text"),
			want: encode("POST /") + encode("!"+frame)},
		{name: "another origin", method: "POST", header: map[string]string{"Content-Type": "application/grpc-web",
			"Origin": "https://b.example"}, wantHeader: map[string]string{"Access-Control-Allow-Origin": ""}},
		{name: "preflight", method: "OPTIONS", status: 204, header: map[string]string{"Origin": "https://a.example",
			"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,x-grpc-web"},
			wantHeader: map[string]string{"Access-Control-Allow-Methods": "POST",
				"Access-Control-Allow-Headers": "content-type,x-grpc-web"}},
		{name: "other preflight", method: "OPTIONS", want: "OPTIONS /!", header: map[string]string{
			"Origin": "https://a.example", "Access-Control-Request-Method": "POST",
			"Access-Control-Request-Headers": "x-grpc-website"}},
		{name: "gRPC", method: "POST", body: "data", header: kind("application/grpc"), want: "POST / data!",
			wantHeader: map[string]string{"Content-Type": "application/grpc", "X-Proto": "HTTP/1.1"}},
	} {
		t.Run(r.name, func(t *testing.T) { r.check(t, server.URL) })
	}
}

// TestInterimOfGRPCWeb lets a server fail after an interim response: its fields are not those of the final response.
func TestInterimOfGRPCWeb(t *testing.T) {
	server := serve(t, build(t, gateway.Middleware{GRPCWeb: &gateway.GRPCWeb{}}, middleware.Deps{})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Interim", "1")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("X-Interim")
			http.Error(w, "failed", http.StatusBadGateway)
		})))
	request{method: "POST", header: map[string]string{"Content-Type": "application/grpc-web"},
		status: http.StatusBadGateway, wantHeader: map[string]string{"X-Interim": ""}}.check(t, server.URL)
}
