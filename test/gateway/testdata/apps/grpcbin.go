package main

import (
	"encoding/binary"
	"io"
	"net/http"
)

// grpcbin speaks gRPC over HTTP/2 without TLS: it echoes each message at once, and answers
// SpecificError with an error.
func grpcbin() error {
	s := &http.Server{Addr: ":9000", Protocols: new(http.Protocols), Handler: http.HandlerFunc(grpc)}
	s.Protocols.SetUnencryptedHTTP2(true)
	return s.ListenAndServe()
}

func grpc(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	if r.URL.Path == "/grpcbin.GRPCBin/SpecificError" {
		w.Header().Set("Grpc-Status", "5")
		return
	}
	w.Header().Set("Trailer", "Grpc-Status")
	_ = http.NewResponseController(w).Flush() // the client may be gone
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(r.Body, head); err != nil {
			break
		}
		message := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(r.Body, message); err != nil {
			return
		}
		_, _ = w.Write(append(head, message...))
		_ = http.NewResponseController(w).Flush()
	}
	w.Header().Set("Grpc-Status", "0")
}
