package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"fairlead/internal/lab/result"
)

// Format is the version of the JSON layout that we write and read.
const Format = 1

// WriteJSON writes the report with a stable order and indent.
func WriteJSON(w io.Writer, r *result.Report) error {
	text, err := marshal(r, "  ")
	if err != nil {
		return err
	}
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// marshal gives the JSON of the report in our format; without an indent it
// stands on one line.
func marshal(r *result.Report, indent string) ([]byte, error) {
	stamped := *r
	stamped.Format = Format
	text, err := json.Marshal(stamped)
	if err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}
	if indent == "" {
		return text, nil
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", indent); err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}
	return out.Bytes(), nil
}

// ReadJSON reads a report that WriteJSON wrote.
func ReadJSON(r io.Reader) (*result.Report, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if err := recognize(text); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var report result.Report
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("read report: the file is damaged: %w", err)
	}
	return &report, nil
}

// recognize tells our reports from other files.
func recognize(text []byte) error {
	var head struct {
		Format *int             `json:"format"`
		Suite  *string          `json:"suite"`
		Start  *json.RawMessage `json:"start"`
		End    *json.RawMessage `json:"end"`
	}
	var syntax *json.SyntaxError
	err := json.Unmarshal(text, &head)
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON, or cut short at byte %d: %w", syntax.Offset, err)
	case err == nil && head.Start != nil && head.End != nil:
		return errors.New("this is the output of iperf3, not a report; import it as such")
	case err != nil || head.Format == nil || head.Suite == nil:
		return errors.New("this JSON is not a laboratory report; expected what `fairlead lab run --json` writes")
	case *head.Format > Format:
		return fmt.Errorf("the file has format %d and this fairlead reads up to %d; use a newer fairlead", *head.Format, Format)
	case *head.Format < 1:
		return fmt.Errorf("the file has the unknown format %d; this fairlead reads %d", *head.Format, Format)
	}
	return nil
}
