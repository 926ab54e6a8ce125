package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/gateway/shown"

	"github.com/spf13/cobra"
)

// standaloneAPI is where a standalone gateway serves its API by default.
const standaloneAPI = "http://127.0.0.1:8080"

// maxAPI is the maximum size in bytes of what a gateway's API answers.
const maxAPI = 64 << 20

// GatewayAPI reads the API of a gateway: that of the daemon, or a standalone one.
type GatewayAPI struct {
	*Remote
	// At is the URL of a standalone gateway's API. If it is empty, the daemon's gateway is
	// asked; if the daemon runs none, the standalone one of this host.
	At string
}

// Flag adds the flag with the URL.
func (g *GatewayAPI) Flag(c *cobra.Command, name string) {
	c.Flags().StringVar(&g.At, name, "", "`URL` of a standalone gateway's API; if not given, the gateway of the "+
		"daemon,\nor "+standaloneAPI+" if the daemon runs none")
}

// Get reads one path of the API, which begins with /api/.
func (g *GatewayAPI) Get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if g.At != "" {
		return readAPI(ctx, g.At, path, into)
	}
	err := admin.NewClient(g.Socket).Gateway(ctx, path, into)
	if !admin.Gone(err) && api.CodeOf(err) != api.NotFound && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if failed := readAPI(ctx, standaloneAPI, path, into); failed != nil {
		return fmt.Errorf("%w; and the daemon runs no gateway: declare one with `gateway:` in fairlead.yaml", failed)
	}
	return nil
}

// readAPI reads one path of a standalone gateway's API.
func readAPI(ctx context.Context, at, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(at, "/")+path, nil)
	if err != nil {
		return Usage(fmt.Errorf("URL %s: %w", at, err))
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("read the gateway's API: %w", err)
	}
	defer answer.Body.Close()
	body := io.LimitReader(answer.Body, maxAPI)
	switch answer.StatusCode {
	case http.StatusOK:
		return json.NewDecoder(body).Decode(into)
	case http.StatusBadRequest:
		text, _ := io.ReadAll(body)
		return Usage(errors.New(strings.TrimSpace(string(text))))
	}
	return fmt.Errorf("read the gateway's API at %s: it answers %s: start the gateway with --api.insecure, or "+
		"give the URL of its API", at, answer.Status)
}

// Explain returns what happens to a request.
func (g *GatewayAPI) Explain(ctx context.Context, method, text string) (a shown.Answer, err error) {
	q := url.Values{"url": {text}, "method": {method}}
	return a, g.Get(ctx, "/api/explain?"+q.Encode(), &a)
}
