package prometheus_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/cli"
	"fairlead/test/documented"

	"go.yaml.in/yaml/v3"
)

const (
	rulesFile     = "../../packaging/prometheus/alerts.yaml"
	dashboardFile = "../../packaging/grafana/fairlead.json"
)

// alert is a rule of rulesFile.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts returns all rules of rulesFile.
func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	in := yaml.NewDecoder(bytes.NewReader(read(t, rulesFile)))
	in.KnownFields(true)
	if err := in.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// panel is a panel of the dashboard. A row has no targets.
type panel struct {
	ID          int
	Type, Title string
	Datasource  struct{ UID string }
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		RefID, Expr string
		Datasource  struct{ UID string }
	}
}

// dashboard is what the tests read of dashboardFile.
type dashboard struct {
	UID        string
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
	Panels []panel
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal(read(t, dashboardFile), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// queries returns the expressions of all panels and variables by what has them, with the variables replaced as Grafana
// replaces them for all hosts.
func (d dashboard) queries() map[string]string {
	all := map[string]string{}
	values := strings.NewReplacer("$host", ".*", "$gateway", ".*", "$__rate_interval", "1m")
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all["panel "+p.Title+" "+q.RefID] = values.Replace(q.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if of := regexp.MustCompile(`label_values\((\w+), \w+\)`).FindSubmatch(v.Query); of != nil {
			all["variable "+v.Name] = string(of[1])
		}
	}
	return all
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestDashboardIsWhole: each panel has its own id, place and data source variable, and uses only variables that exist.
func TestDashboardIsWhole(t *testing.T) {
	d := readDashboard(t)
	variables := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	var ids []int
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids = append(ids, p.ID); p.Title == "" || (len(p.Targets) == 0) != (p.Type == "row") {
			t.Errorf("panel %d (%s) has the title %q and %d queries", p.ID, p.Type, p.Title, len(p.Targets))
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, is := taken[[2]int{x, y}]; is || x >= 24 {
					t.Fatalf("panel %q is over %q, or outside of the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" || p.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q has the data source %q", p.Title, q.Datasource.UID)
			}
			for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(q.Expr, -1) {
				if !slices.Contains(variables, v[1]) {
					t.Errorf("panel %q uses the unknown variable %s", p.Title, v[1])
				}
			}
		}
	}
	slices.Sort(ids)
	if unique := slices.Compact(slices.Clone(ids)); len(unique) != len(ids) || len(ids) < 40 || d.UID == "" {
		t.Errorf("the panels have the ids %v", ids)
	}
}

// TestPackagedNamesAreDocumented: the dashboard and the alerts use only metrics that the guides list.
func TestPackagedNamesAreDocumented(t *testing.T) {
	queries := readDashboard(t).queries()
	for _, a := range alerts(t) {
		queries["alert "+a.Alert] = a.Expr
	}
	known := documented.Metrics(t, "../..")
	used := 0
	for what, query := range queries {
		for _, name := range regexp.MustCompile(`\b(fairlead|traefik)_\w+`).FindAllString(query, -1) {
			used++
			name = strings.TrimSuffix(name, "_bucket")
			if !slices.ContainsFunc(known, func(m documented.Metric) bool { return m.Name == name }) {
				t.Errorf("%s uses %s, which no guide lists", what, name)
			}
		}
	}
	if used < len(queries) {
		t.Errorf("%d queries use %d metrics", len(queries), used)
	}
}

// TestAlertsNameCommands: each alert says what has happened and what to do. The commands that it names exist.
func TestAlertsNameCommands(t *testing.T) {
	commands := regexp.MustCompile("`fairlead ([^`]+)`")
	named := 0
	for _, a := range alerts(t) {
		if a.Labels["severity"] == "" || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has the labels %v and the annotations %v", a.Alert, a.Labels, a.Annotations)
		}
		for _, found := range commands.FindAllStringSubmatch(a.Annotations["description"], -1) {
			named++
			if err := exists(t, strings.Fields(found[1])); err != "" {
				t.Errorf("%s names fairlead %s: %s", a.Alert, found[1], err)
			}
		}
	}
	if named < 10 {
		t.Errorf("the alerts name %d commands", named)
	}
}

// exists returns why a command does not exist; empty if it does. Words in capitals, and values, are arguments.
func exists(t *testing.T, words []string) string {
	t.Helper()
	name := "fairlead"
	var flags, args []string
	for _, w := range words {
		switch {
		case strings.HasPrefix(w, "--"):
			flags = append(flags, w)
		case regexp.MustCompile(`^[a-z-]+$`).MatchString(w):
			name += " " + w
			args = append(args, w)
		}
	}
	errors, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer errors.Close()
	var help bytes.Buffer
	if cli.Main(cli.Build{Version: "devel"}, append(args, "--help"), &help, errors) != 0 ||
		!regexp.MustCompile(`\n  `+name+`( |\n)`).Match(help.Bytes()) {
		return "there is no command " + name
	}
	for _, f := range flags {
		if !bytes.Contains(help.Bytes(), []byte(f+" ")) {
			return "it has no flag " + f
		}
	}
	return ""
}
