// fake-gcs-server with the part of the XML API that it lacks and the client library writes with: objects, copies and
// uploads in parts. Each write becomes a call of fake-gcs-server's own JSON API, which keeps the objects, judges the
// conditions, and answers everything else itself.
//
//	fake-gcs-server PORT
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

type front struct {
	behind  http.Handler
	lock    sync.Mutex
	uploads map[string]map[int][]byte
}

func main() {
	port, err := strconv.ParseUint(os.Args[1], 10, 16)
	check(err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true, Scheme: "http", PublicHost: address, ExternalURL: "http://" + address,
	})
	check(err)
	check(http.ListenAndServe(address, &front{behind: server.HTTPHandler(), uploads: map[string]map[int][]byte{}}))
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 2)
	query := r.URL.Query()
	isObject := len(path) == 2 && path[0] != "storage" && path[0] != "upload" && path[0] != "batch" && path[0] != "_internal"
	switch {
	case !isObject || r.Method == http.MethodGet || r.Method == http.MethodHead:
		f.behind.ServeHTTP(w, r)
	case r.Method == http.MethodPost && query.Has("uploads"):
		f.begin(w, path[0], path[1])
	case query.Has("uploadId"):
		f.proceed(w, r, path[0], path[1], query)
	case r.Method == http.MethodPut && r.Header.Get("X-Goog-Copy-Source") != "":
		f.copy(w, r, path[0], path[1])
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil { // a body that is cut off is no object
			return
		}
		f.write(w, path[0], path[1], r.Header.Get("X-Goog-If-Generation-Match"), body)
	default:
		f.behind.ServeHTTP(w, r)
	}
}

func (f *front) begin(w http.ResponseWriter, bucket, name string) {
	if f.call(http.MethodGet, "/storage/v1/b/"+url.PathEscape(bucket), nil).Code != http.StatusOK {
		refuse(w, http.StatusNotFound)
		return
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	upload := hex.EncodeToString(id)
	f.lock.Lock()
	f.uploads[upload] = map[int][]byte{}
	f.lock.Unlock()
	answer(w, "InitiateMultipartUploadResult", [][2]string{{"Bucket", bucket}, {"Key", name}, {"UploadId", upload}})
}

func (f *front) proceed(w http.ResponseWriter, r *http.Request, bucket, name string, query url.Values) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	id := query.Get("uploadId")
	f.lock.Lock()
	defer f.lock.Unlock()
	parts, known := f.uploads[id]
	if !known {
		refuse(w, http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodPut:
		number, err := strconv.Atoi(query.Get("partNumber"))
		check(err)
		parts[number] = body
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%s-%d", id, number)))
	case http.MethodDelete:
		delete(f.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		delete(f.uploads, id)
		var whole bytes.Buffer
		for _, number := range sorted(parts) {
			whole.Write(parts[number])
		}
		stored := f.store(bucket, name, r.Header.Get("X-Goog-If-Generation-Match"), whole.Bytes())
		if stored.Code != http.StatusOK {
			refuse(w, stored.Code)
			return
		}
		answer(w, "CompleteMultipartUploadResult", [][2]string{{"Bucket", bucket}, {"Key", name}, {"ETag", `"` + id + `"`}})
	}
}

func (f *front) copy(w http.ResponseWriter, r *http.Request, bucket, name string) {
	source, err := url.PathUnescape(r.Header.Get("X-Goog-Copy-Source"))
	check(err)
	from := strings.SplitN(strings.TrimPrefix(source, "/"), "/", 2)
	found := f.call(http.MethodGet, "/storage/v1/b/"+url.PathEscape(from[0])+"/o/"+url.PathEscape(from[1])+"?alt=media", nil)
	if found.Code != http.StatusOK {
		refuse(w, found.Code)
		return
	}
	f.write(w, bucket, name, r.Header.Get("X-Goog-If-Generation-Match"), found.Body.Bytes())
}

func (f *front) write(w http.ResponseWriter, bucket, name, generation string, body []byte) {
	f.lock.Lock()
	defer f.lock.Unlock()
	stored := f.store(bucket, name, generation, body)
	if stored.Code != http.StatusOK {
		refuse(w, stored.Code)
		return
	}
	// The XML API names the object's version in headers, the JSON API in the document.
	head := f.call(http.MethodGet, "/storage/v1/b/"+url.PathEscape(bucket)+"/o/"+url.PathEscape(name)+"?alt=media", nil)
	for _, header := range []string{"ETag", "X-Goog-Generation"} {
		w.Header().Set(header, head.Header().Get(header))
	}
	answer(w, "CopyObjectResult", [][2]string{{"ETag", head.Header().Get("ETag")}})
}

func (f *front) store(bucket, name, generation string, body []byte) *httptest.ResponseRecorder {
	query := url.Values{"uploadType": {"media"}, "name": {name}}
	if generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	return f.call(http.MethodPost, "/upload/storage/v1/b/"+url.PathEscape(bucket)+"/o?"+query.Encode(), body)
}

func (f *front) call(method, target string, body []byte) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest(method, target, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/octet-stream")
	f.behind.ServeHTTP(recorder, request)
	return recorder
}

func refuse(w http.ResponseWriter, status int) {
	code := map[int]string{http.StatusNotFound: "NoSuchBucket", http.StatusPreconditionFailed: "PreconditionFailed"}[status]
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

func answer(w http.ResponseWriter, name string, fields [][2]string) {
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, "<%s>", name)
	for _, field := range fields {
		fmt.Fprintf(w, "<%s>", field[0])
		check(xml.EscapeText(w, []byte(field[1])))
		fmt.Fprintf(w, "</%s>", field[0])
	}
	fmt.Fprintf(w, "</%s>", name)
}

func sorted(parts map[int][]byte) []int {
	numbers := make([]int, 0, len(parts))
	for number := range parts {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	return numbers
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
