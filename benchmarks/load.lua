-- wrk's requests: the pictures named on its command line, in turn. Counts answers by their status.
local pictures, turn, threads = {}, 0, {}

function setup(thread)
  table.insert(threads, thread)
end

function init(names)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "image/png"
  for _, name in ipairs(names) do
    local file = assert(io.open(name, "rb"))
    table.insert(pictures, wrk.format(nil, nil, nil, file:read("*a")))
    file:close()
  end
  right, wrong = 0, 0
end

function request()
  turn = turn % #pictures + 1
  return pictures[turn]
end

function response(status)
  if status == 200 then right = right + 1 else wrong = wrong + 1 end
end

function done(summary, latency)
  local right, wrong = 0, 0
  for _, thread in ipairs(threads) do
    right = right + thread:get("right")
    wrong = wrong + thread:get("wrong")
  end
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.timeout
  print(string.format("{\"rate\": %f, \"p50_ms\": %f, \"p99_ms\": %f, \"faults\": %d}",
    right / summary.duration * 1e6, latency:percentile(50) / 1000,
    latency:percentile(99) / 1000, wrong + failed))
end
