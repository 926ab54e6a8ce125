package metrics_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/frontend/metrics"
)

// TestHostHeader makes requests on TCP and on a unix socket, with Host headers for
// this host and for others. After DNS rebinding a browser sends a name of another
// host.
func TestHostHeader(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "m")} {
		l, err := metrics.Listen(address, "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- metrics.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_,
					_ = io.WriteString(w, "metrics")
			}))
		}()
		network, at := l.Addr().Network(), l.Addr().String()
		if path, unix := strings.CutPrefix(address, "unix:"); unix {
			at = path // the listener's address is the name before the rename
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, at)
			}}}
		for host, allowed := range map[string]bool{"localhost": true, "LOCALHOST:9464": true, "127.0.0.1": true,
			"127.0.0.2:9464": true, "[::1]:9464": true, "[::1]": true,
			"evil.example": false, "evil.example:9464": false, "127.0.0.1.evil.example": false, "192.0.2.1:9464": false,
			"localhost.evil.example": false} {
			r, err := http.NewRequest(http.MethodGet, "http://"+host+"/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if want := allowed || network == "unix"; (answer.StatusCode == http.StatusOK) != want {
				t.Errorf("%s: Host %s: got %s", address, host, answer.Status)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
