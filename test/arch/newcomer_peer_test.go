package arch_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// insertion is a line that a newcomer adds to an existing file after another line.
type insertion struct{ file, after, line string }

// newPeer is what it takes to add the peer socat to the laboratory, in addition to the
// file testdata/socat.go.
var newPeer = []insertion{
	{"internal/lab/suite/suite.go", `	DockerProxy = Peer{`,
		`	Socat = Peer{Name: "socat", Extends: true, TCPOnly: true}`},
	{"internal/lab/suite/suite.go", `			Driver: model.DriverBridge, Peer: DockerProxy},`,
		`		{Name: "socat", About: "a port forwarded by socat", Driver: model.DriverBridge, Peer: Socat},`},
	{"internal/lab/peer/peers.go", `	{suite.DockerProxy, `, `	{suite.Socat, newSocat},`},
}

const newPeerFile = "internal/lab/peer/socat.go"

// TestNewPeer adds a peer to a copy of the tree. The laboratory builds and knows the
// peer's path, and the page names every file that the newcomer touches.
func TestNewPeer(t *testing.T) {
	t.Parallel()
	if out, err := testWith(t, newPeer); err != nil {
		t.Errorf("a laboratory with one more peer: %v\n%s", err, out)
	}
	if out, err := testWith(t, newPeer[:2]); err == nil || !strings.Contains(string(out), "has no maker") {
		t.Errorf("a peer without a maker: %v, want a failure that says so\n%s", err, out)
	}
	touched := map[string]bool{}
	for _, i := range newPeer {
		touched[i.file] = true
	}
	created, listed := newcomerRow(t, "peer in the laboratory")
	if want := slices.Sorted(maps.Keys(touched)); !slices.Equal(listed, want) || len(want) > 2 {
		t.Errorf("the page lists %q to touch, the test touches %q, want at most 2", listed, want)
	}
	if want := strings.Replace(newPeerFile, "socat", "NAME", 1); !slices.Equal(created, []string{want}) {
		t.Errorf("the page lists %q to create, want %s", created, want)
	}
}

// testWith runs the tests of the package peer on a copy of the tree with the new file
// and the insertions.
func testWith(t *testing.T, all []insertion) ([]byte, error) {
	t.Helper()
	overlay := overlayOf(t, map[string]string{newPeerFile: "testdata/socat.go"}, all)
	cmd := exec.Command("go", "test", "-overlay", overlay,
		"-count=1", "-vet=off", "-ldflags=-s -w", "-run", "^(TestEveryPathHasAMaker|TestPeersNamePackages)$",
		"./internal/lab/peer")
	cmd.Dir = "../.."
	return cmd.CombinedOutput()
}

// overlayOf writes an overlay of the tree for the go command, and returns its path. Files
// maps each new file to the file with its text.
func overlayOf(t *testing.T, files map[string]string, all []insertion) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for file, text := range files {
		path, err := filepath.Abs(text)
		if err != nil {
			t.Fatal(err)
		}
		replace[file] = path
	}
	for _, i := range all {
		from := replace[i.file]
		if from == "" {
			from = filepath.Join("../..", i.file)
		}
		to := filepath.Join(dir, strings.ReplaceAll(i.file, "/", "-"))
		if err := os.WriteFile(to, []byte(i.into(t, from)), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[i.file] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// into returns the text of the file with the line inserted.
func (i insertion) into(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "\n"+i.after)
	anchor, rest, _ := strings.Cut(rest, "\n")
	if !ok {
		t.Fatalf("%s has no line that starts with %q", i.file, i.after)
	}
	return before + "\n" + i.after + anchor + "\n" + i.line + "\n" + rest
}

// newcomerRow returns the files to create and to touch that the page lists for a kind
// of addition.
func newcomerRow(t *testing.T, kind string) (create, touch []string) {
	t.Helper()
	_, section, _ := strings.Cut(page(t), "\n## To add something\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.TrimSpace(cells[1]) != kind {
			continue
		}
		for i, files := range []*[]string{&create, &touch} {
			for _, m := range quoted.FindAllStringSubmatch(cells[2+i], -1) {
				*files = append(*files, m[1])
			}
			slices.Sort(*files)
		}
	}
	return create, touch
}

// TestRunnerKnowsNoPath holds the runner to the traits of a path: what depends on its
// driver, peer, publish mode or data plane belongs into a maker of paths.
func TestRunnerKnowsNoPath(t *testing.T) {
	files, err := filepath.Glob("../../internal/lab/runner/*.go")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, asked := range pathQuestions(t, string(text)) {
			t.Errorf("%s asks for %s", file, asked)
		}
	}
	asked := pathQuestions(t, "package runner\n"+
		"var x = p.Driver == host || r.Path.Via != q || p.Peer == suite.CNI || p.Peer.InDocker")
	if want := []string{"Driver", "Peer", "Via"}; !slices.Equal(asked, want) {
		t.Errorf("found %q, want %q", asked, want)
	}
}

// pathQuestions returns the properties of a path that a file asks by name.
func pathQuestions(t *testing.T, text string) (asked []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if slices.Contains([]string{"Driver", "Via", "Plane", "Direct"}, n.Sel.Name) {
				asked = append(asked, n.Sel.Name)
			}
		case *ast.BinaryExpr:
			if s, ok := n.X.(*ast.SelectorExpr); ok && s.Sel.Name == "Peer" {
				asked = append(asked, "Peer")
			}
		}
		return true
	})
	slices.Sort(asked)
	return asked
}
