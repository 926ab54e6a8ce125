package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
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

// Attach attaches a sandbox.
func (c *Client) Attach(ctx context.Context, r api.AttachRequest) (api.Result, error) {
	return c.post(ctx, pathAttach, r)
}

// Detach removes attachments.
func (c *Client) Detach(ctx context.Context, r api.DetachRequest) (api.Result, error) {
	return c.post(ctx, pathDetach, r)
}

// Publish publishes ports of an attachment.
func (c *Client) Publish(ctx context.Context, r api.PublishRequest) (api.Result, error) {
	return c.post(ctx, pathPublish, r)
}

// Unpublish removes publishes of an attachment.
func (c *Client) Unpublish(ctx context.Context, r api.PublishRequest) (api.Result, error) {
	return c.post(ctx, pathUnpublish, r)
}

// CreateNetwork creates or changes a network.
func (c *Client) CreateNetwork(ctx context.Context, n model.Network, dry bool) (api.Result, error) {
	return c.post(ctx, pathCreateNetwork, NetworkRequest{n, dry})
}

// RemoveNetwork removes a network.
func (c *Client) RemoveNetwork(ctx context.Context, name string) (api.Result, error) {
	return c.post(ctx, pathRemoveNetwork, NetworkName{name})
}

// CheckNetwork checks an overlay's paths to its other hosts.
func (c *Client) CheckNetwork(ctx context.Context, name string) ([]api.PeerPathView, error) {
	var w PeerPaths
	err := c.call(ctx, http.MethodPost, pathCheckNetwork, NetworkName{name}, &w)
	return w.Paths, err
}

// Apply applies the Spec to the host. In a dry run it only returns the plan and the
// changes. If the Spec has mistakes, the *api.Fault wraps api.Mistakes.
func (c *Client) Apply(ctx context.Context, spec api.Spec, dry bool) (api.Result, error) {
	return c.post(ctx, pathApply, SpecRequest{spec, dry})
}

// State returns the desired state as a Spec.
func (c *Client) State(ctx context.Context) (State, error) {
	var s State
	err := c.call(ctx, http.MethodGet, pathState, nil, &s)
	return s, err
}

// Attachments returns all attachments.
func (c *Client) Attachments(ctx context.Context) ([]api.View, error) {
	var a Attachments
	err := c.call(ctx, http.MethodGet, pathAttachments, nil, &a)
	return a.Attachments, err
}

// Networks returns all networks.
func (c *Client) Networks(ctx context.Context) ([]model.Network, error) {
	var n Networks
	err := c.call(ctx, http.MethodGet, pathNetworks, nil, &n)
	return n.Networks, err
}

// Stats returns the traffic counters of the daemon's networks.
func (c *Client) Stats(ctx context.Context) (s api.Stats, err error) {
	err = c.call(ctx, http.MethodGet, pathStats, nil, &s)
	return s, err
}

func (c *Client) post(ctx context.Context, path string, request any) (r api.Result, err error) {
	err = c.call(ctx, http.MethodPost, path, request, &r)
	return r, err
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
