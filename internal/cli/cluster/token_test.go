package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTokenOf reads a join token from each place that may have it.
func TestTokenOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("fromfile\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args                   []string
		file, stdin, env, want string
		err                    string
	}{
		"argument":               {args: []string{"text"}, env: "other", want: "text"},
		"file":                   {file: path, env: "other", want: "fromfile"},
		"standard input":         {file: "-", stdin: " piped \n", want: "piped"},
		"environment":            {env: "secret", want: "secret"},
		"nowhere":                {err: "--token-file or in FAIRLEAD_JOIN_TOKEN"},
		"twice":                  {args: []string{"text"}, file: path, err: "given twice"},
		"no file":                {file: path + "x", err: "no such file"},
		"empty standard input":   {file: "-", err: "has none"},
		"endless standard input": {file: "-", stdin: strings.Repeat("x", maxToken+1), err: "has none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(joinToken, test.env)
			got, err := tokenOf(test.args, test.file, strings.NewReader(test.stdin))
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(),
				test.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}
