package explain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/explain/flow"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// request is the explanation of an HTTP request.
type request struct {
	// Path is the flow to the entry point; nil without FROM.
	Path *flow.Explanation `json:"path,omitempty"`
	shown.Answer
}

// isRequest reports whether the arguments name a URL, alone or as FROM to URL.
func isRequest(args []string) bool {
	last := strings.Fields(args[len(args)-1])
	return len(last) > 0 && strings.Contains(last[len(last)-1], "://")
}

// explainURL explains what a gateway does with a request.
func (x *explainer) explainURL(c *cobra.Command, args []string) error {
	words := strings.Fields(strings.Join(args, " "))
	to := words[len(words)-1]
	u, err := url.Parse(to)
	if err != nil {
		return command.Usage(fmt.Errorf("URL %s: %w", to, err))
	}
	from := words[:len(words)-1]
	if n := len(from); n == 1 || n > 2 || n == 2 && from[1] != "to" && from[1] != "->" {
		return command.Usage(errors.New("want URL, or FROM to URL"))
	}
	if x.probe != "" && len(from) == 0 {
		return command.Usage(errors.New("--probe needs the place that the packet comes from: write FROM to URL"))
	}
	var r request
	if r.Answer, err = x.api.Explain(c.Context(), x.method, to); err != nil {
		return err
	}
	if len(from) > 0 {
		if r.Path, err = x.pathTo(c.Context(), from[0], u, r.Answer); err != nil {
			return err
		}
	}
	if x.Output == "json" {
		return x.JSON(r)
	}
	if r.Path != nil {
		if err := errors.Join(x.print(*r.Path), x.Out.Lines("")); err != nil {
			return err
		}
	}
	if err := x.Out.Table(wording.AnswerRows(r.Answer)); err != nil {
		return err
	}
	return x.Out.Lines(wording.AnswerLines(r.Answer)...)
}

// pathTo explains the flow from a place to the entry point of a request.
func (x *explainer) pathTo(ctx context.Context, from string, u *url.URL, a shown.Answer) (*flow.Explanation,
	error) {
	if os.Geteuid() != 0 {
		return nil, command.Usage(errors.New("root is needed to read network namespaces: run as root, e.g. with sudo"))
	}
	host, port, err := net.SplitHostPort(strings.TrimSuffix(a.Address, "/tcp"))
	switch {
	case err != nil && u.Port() != "":
		port = u.Port()
	case err != nil:
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	f, err := flow.Parse([]string{from, "to", net.JoinHostPort(host, port)})
	if err != nil {
		return nil, command.Usage(err)
	}
	e, err := x.explain(ctx, f)
	return &e, err
}
