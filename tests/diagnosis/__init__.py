"""Why devices can't go on.

counterparts.py: test_hints.py, test_golden.py
facts/findings.py, report/json.py, report/text.py: test_report.py, test_golden.py
report/html_lines.py: test_html_lines.py, test_report_page.py
report/equal_devices.py, report/excerpts.py, report/html_graph.py, report/html_markup.py,
report/html_timelines.py: test_report_page.py, test_pages_in_a_browser.py
"""
