package healthcheck

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// servingMessage is the message HealthCheckResponse{status: SERVING} of the gRPC health
// checking protocol, with the five bytes that precede each message in HTTP/2. The request
// HealthCheckRequest{} asks for the server as a whole.
var servingMessage, emptyMessage = []byte{0, 0, 0, 0, 2, 8, 1}, make([]byte, 5)

// askGRPC asks with the gRPC health checking protocol, and returns why the server is down.
func (c *Checks) askGRPC(ctx context.Context, server *url.URL) error {
	client, to, err := c.target(server, "/grpc.health.v1.Health/Check")
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(emptyMessage))
	if err != nil {
		return err
	}
	c.prepare(r)
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d, want 200 and a gRPC message", response.StatusCode)
	}
	message, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return err
	}
	switch code := cmp.Or(response.Trailer.Get("Grpc-Status"), response.Header.Get("Grpc-Status")); {
	case code == "12":
		return errors.New("gRPC status 12: the server does not implement grpc.health.v1.Health")
	case code != "0":
		return fmt.Errorf("gRPC status %q, want 0", code)
	case !bytes.Equal(message, servingMessage):
		return errors.New("the server answers that it does not serve")
	}
	return nil
}
