// Package differential_test compares the gateway with Traefik: both play the same generated batches of
// configurations, labels and requests, and each difference must stand in the table "What differs" of
// docs/guide/from-traefik.md. It does not compare connections of TLS, HTTP/2 and HTTP/3, nor the bytes of
// TCP and UDP routers.
//
// Without settings, the answers of Traefik are those in testdata, and a batch is small. `make
// differential` plays many more with a Traefik that it builds.
package differential_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fairlead/test/compiled"
)

// recording is the file with the answers of Traefik to the batches that CI plays.
const recording = "testdata/traefik.json"

// recorded are answers of Traefik.
type recorded struct {
	// Batches is the hash of the batches that were played.
	Batches  string
	Outcomes []outcome
}

// TestSameAsTraefik plays batches with both gateways, and fails for each difference that no row of the
// table explains. The environment has the settings of `make differential`.
func TestSameAsTraefik(t *testing.T) {
	seed, requests, sets := setting("SEED", 1), setting("REQUESTS", 300), setting("LABELS", 50)
	batches := append(generate(uint64(seed), requests), labelled(uint64(seed), sets)...)
	program, record := os.Getenv("FAIRLEAD_TRAEFIK"), os.Getenv("FAIRLEAD_RECORD") != ""
	here, known := fairlead(t), recorded{Batches: hashOf(t, batches)}
	if program == "" {
		known = load(t, known.Batches)
	}
	shown := map[*row]int{}
	played, unexplained := 0, 0
	for i := range batches {
		b := &batches[i]
		if program != "" {
			known.Outcomes = append(known.Outcomes, play(t, []string{program}, *b))
		}
		played += len(b.Requests)
		for _, d := range compare(b, known.Outcomes[i], play(t, here, *b)) {
			if r := explained(d); r != nil {
				shown[r]++
				continue
			}
			if unexplained++; unexplained <= 40 {
				t.Errorf("no row of the table explains: %s", d)
			}
		}
	}
	t.Logf("%d requests and %d sets of labels, seed %d: %d differences outside the table", played, sets, seed,
		unexplained)
	for i := range rows {
		if program != "" && !record && rows[i].shows != nil && shown[&rows[i]] == 0 {
			t.Logf("no request of this seed shows the row %q", rows[i].text)
		}
	}
	if record {
		save(t, known)
	}
}

// setting returns a number of the environment.
func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv("FAIRLEAD_" + name)); err == nil {
		return n
	}
	return otherwise
}

// fairlead returns the command of the gateway in place of Traefik.
func fairlead(t *testing.T) []string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "fairlead")
	if err := compiled.Fairlead(program); err != nil {
		t.Fatal(err)
	}
	return []string{program, "gateway", "traefik", "--"}
}

func hashOf(t *testing.T, batches []batch) string {
	t.Helper()
	text, err := json.Marshal(batches)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// load returns the recorded answers to the batches with the hash.
func load(t *testing.T, batches string) (known recorded) {
	t.Helper()
	text, err := os.ReadFile(recording)
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil {
		t.Fatal(err)
	}
	if known.Batches != batches {
		t.Fatal("the batches are not those whose answers are recorded: run `make differential RECORD=1`")
	}
	return known
}

func save(t *testing.T, known recorded) {
	t.Helper()
	text, err := json.MarshalIndent(known, "", "") // lines, so that a change can be read
	if err == nil {
		err = os.WriteFile(recording, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// cell matches a row of a table with three cells.
var cell = regexp.MustCompile(`(?m)^\| (.+?) \| .+ \| .+ \|$`)

// TestTableHasTheRows checks that the rows of the guide's table are those that explain differences.
func TestTableHasTheRows(t *testing.T) {
	text, err := os.ReadFile("../../docs/guide/from-traefik.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## What differs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found := cell.FindAllStringSubmatch(section, -1)
	if len(found) == 0 {
		t.Fatal("the guide has no table")
	}
	used := map[int]bool{}
	for _, c := range found[1:] { // after the head
		if strings.HasPrefix(c[1], "---") {
			continue
		}
		matches := 0
		for i, r := range rows {
			if strings.HasPrefix(c[1], r.text) {
				used[i] = true
				matches++
			}
		}
		if matches != 1 {
			t.Errorf("%d entries of rows describe the row %q of the table, want 1", matches, c[1])
		}
	}
	for i, r := range rows {
		if !used[i] {
			t.Errorf("the table has no row that begins with %q", r.text)
		}
	}
}
