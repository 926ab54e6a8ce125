package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"

	"fairlead/internal/api"
)

// Client calls a daemon. Its methods return *api.Fault if the daemon refused the
// request, and a wrapped network error (fs.ErrNotExist, ECONNREFUSED …) if no daemon
// listens. It is safe for concurrent use.
type Client struct {
	http http.Client
}

// NewClient returns a client of the daemon that listens at the unix socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{http.Client{Transport: &http.Transport{DialContext: dial}}}
}

func (c *Client) call(ctx context.Context, method, path string, request, into any) error {
	var body bytes.Buffer
	if request != nil {
		if err := json.NewEncoder(&body).Encode(request); err != nil {
			return fmt.Errorf("write request: %w", err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://fairlead"+path, &body)
	if err != nil {
		return err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("call the daemon: %w", err)
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	if response.StatusCode == http.StatusOK {
		if err := decoder.Decode(into); err != nil {
			return fmt.Errorf("read the daemon's response: %w", err)
		}
		return nil
	}
	return refusal(response, decoder)
}

// refusal decodes the error of a response.
func refusal(response *http.Response, body *json.Decoder) error {
	var refused Error
	if err := body.Decode(&refused); err != nil || refused.Message == "" {
		return fmt.Errorf("the daemon returned %s", response.Status)
	}
	if len(refused.Mistakes) > 0 {
		return &api.Fault{Code: refused.Code, Err: refused.Mistakes}
	}
	var lines []error
	for line := range strings.SplitSeq(refused.Message, "\n") {
		lines = append(lines, errors.New(line))
	}
	return &api.Fault{Code: refused.Code, Err: errors.Join(lines...)}
}

// Gone reports whether no daemon listens, or whether it ended during the call.
// Every request can be repeated then.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}
